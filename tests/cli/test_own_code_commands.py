"""A rule in one's own file through the commands: run, resume, compare, sweep, plan."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import Cli
from tests.experiment.own_files import EXAMPLES, RULE, forgotten, write

OWN = "rule.name=lib/mine.py:mine"


@pytest.fixture(autouse=True)
def _rule(cli: Cli, tmp_path: Path) -> Iterator[None]:
    write("lib/mine.py", RULE)
    with forgotten(tmp_path):
        yield


def test_a_resumed_run_tells_that_the_users_file_has_changed(cli: Cli, tmp_path: Path) -> None:
    said = cli("run", "small.toml", OWN, "--out", "one")
    assert said.code == 0, said.err
    assert "mine.py:mine" in said.out
    assert str(tmp_path) not in said.out
    kept = tomllib.loads(Path("one/spec.toml").read_text())
    assert kept["rule"]["name"] == f"{tmp_path}/lib/mine.py:mine"
    again = cli("run", "small.toml", OWN, "--out", "one", "--resume")
    assert (again.code, "has changed" in again.err) == (0, False)
    write("lib/mine.py", RULE, "# more\n")
    told = cli("run", "one/spec.toml", "--out", "one", "--resume")
    assert told.code == 0, told.err
    assert "since the checkpoint was made, mine.py has changed" in told.err
    assert "start in a new folder" in told.err


LINK = """
from dataclasses import dataclass
import tardigrad as tg

@dataclass(frozen=True)
class Mine(tg.BandwidthAware):
    c_pull: float = 0.001
"""


def test_a_link_that_decides_on_the_way_is_compared_too(cli: Cli) -> None:
    write("own_link.py", LINK)
    words = ("run", "small.toml", "rule={name='fasgd',lr=0.01}", "link=own_link.py:Mine")
    first = cli(*words)
    assert first.code == 0, first.err
    write("own_link.py", LINK, "# more\n")
    told = cli(*words, "--resume")
    assert told.code == 0, told.err
    assert "since the checkpoint was made, own_link.py has changed" in told.err


def test_own_rules_are_compared_with_ready_made_ones(cli: Cli) -> None:
    rules = "sgd:lr=0.02,lib/mine.py:mine,lib/mine.py:mine:power=0"
    said = cli("compare", "small.toml", "--rules", rules, "--seeds", "2", "--out", "both")
    assert said.code == 0, said.err
    lines = Path("both/comparison.jsonl").read_text().splitlines()
    ended = {(o["label"], o["seed"]): o["summary"]["final"] for o in map(json.loads, lines)}
    assert len(ended) == 6
    noted = [json.loads(line)["summary"].get("own_code", {}) for line in lines]
    assert [list(files) for files in noted] == [[], ["mine.py"], ["mine.py"]] * 2
    assert ended["lib/mine.py:mine", 0] != ended["lib/mine.py:mine:power=0", 0]
    plain = cli("compare", "small.toml", "--rules", "sgd", "--seeds", "2", "--out", "plain")
    assert plain.code == 0
    for line in Path("plain/comparison.jsonl").read_text().splitlines():
        outcome = json.loads(line)  # power 0 is no penalty
        same = ended["lib/mine.py:mine:power=0", outcome["seed"]]
        assert outcome["summary"]["final"] == same


def test_processes_of_a_sweep_load_the_file_themselves(cli: Cli) -> None:
    axis = "rule.name=[sgd,lib/mine.py:mine]"
    said = cli("sweep", "small.toml", axis, "--jobs", "2", "--out", "swept")
    assert said.code == 0, said.err
    assert "lib/mine.py:mine" in said.out
    assert len(Path("swept/comparison.jsonl").read_text().splitlines()) == 2


def test_a_plan_for_ones_own_cluster_is_ready_to_run(cli: Cli) -> None:
    cluster = f'cluster={{name="{EXAMPLES}/two_speeds.py:TwoSpeeds",workers=4}}'
    said = cli("plan", "small.toml", cluster, "--out", "planned")
    assert said.code == 0, said.err
    spec = tomllib.loads(Path("planned/recommended.toml").read_text())
    assert spec["cluster"]["name"] == f"{EXAMPLES}/two_speeds.py:TwoSpeeds"
    ran = cli("run", "planned/recommended.toml", "updates=5", "task=quadratic", "--out", "ran")
    assert ran.code == 0, ran.err


def test_bad_input_is_one_line_and_exit_code_2(cli: Cli) -> None:
    for name in ("lib/mime.py:mine", "lib/mine.py:mini", "lib/mine.py", "lib.nowhere:mine"):
        said = cli("run", "small.toml", f"rule.name={name}")
        assert said.code == 2
        assert said.err.startswith("error: rule.name = ")
        assert said.err.count("\n") == 1
