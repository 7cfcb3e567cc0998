"""`tardigrad list rules gap_aware`: all there is to know of one name."""

import inspect
import re
from pathlib import Path

import pytest

from tardigrad.cli.listed import LISTS
from tardigrad.experiment.described import described
from tardigrad.experiment.spec import STRUCTURE
from tests.cli.command_line import Cli
from tests.experiment.own_files import forgotten

NAMES = [(what, name) for what, listed in LISTS.items() for name in listed.registry.makers]


@pytest.mark.parametrize(("what", "name"), NAMES)
def test_every_argument_has_a_meaning(what: str, name: str) -> None:
    found = described(STRUCTURE, LISTS[what].registry, name)
    parameters = inspect.signature(LISTS[what].registry.makers[name]).parameters
    assert [argument.name for argument in found.arguments] == list(parameters)
    assert [a.name for a in found.arguments if not a.meaning] == []
    for argument in found.arguments:
        assert (argument.default == "") == (
            parameters[argument.name].default is inspect.Parameter.empty
        )
    assert found.text
    assert "Args:" not in found.text


@pytest.mark.parametrize("what", LISTS)
def test_what_is_read_from_the_source_is_what_there_is(what: str) -> None:
    makers = LISTS[what].registry.makers
    first = [(inspect.getdoc(maker) or "").partition("\n")[0] for maker in makers.values()]
    assert LISTS[what].lines() == list(zip(makers, first, strict=True))
    assert all(first)


@pytest.mark.parametrize("name", LISTS["rules"].registry.makers)
def test_every_rule_names_its_paper(name: str) -> None:
    text = described(STRUCTURE, LISTS["rules"].registry, name).text
    assert re.search(r"[A-Z]\w+ (and \w+ |et al\. )?(19|20)\d\d", text)


def test_one_rule_is_told_whole(cli: Cli) -> None:
    said = cli("list", "rules", "gap_aware")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].startswith('gap_aware(lr, momentum=0.9, nesterov=true, per="parameter", ')
    assert lines[1].startswith("G = |θ − view|")
    assert "Barkai et al. 2020, Alg. 4 and 14" in said.out
    assert "Choices: C from the root mean square" in said.out  # told at `Gap`
    rows = {line.split()[0]: line for line in lines if line and line[0].islower()}
    assert "must be given" in rows["lr"]
    assert "only the part of the gap above it counts" in rows["tolerance"]
    assert "wd·θ" in rows["weight_decay"]


def test_bases_tell_of_their_arguments(cli: Cli) -> None:
    said = cli("list", "clusters", "gamma").out
    assert re.search(r"^network .*how long messages travel", said, re.M)
    assert re.search(r"^absences +a list +\[\] +workers that leave", said, re.M)


def test_what_takes_nothing_has_no_table(cli: Cli) -> None:
    said = cli("list", "policies", "sync")
    assert said.out.splitlines()[0] == "sync()"
    assert "argument" not in said.out


def test_one_of_the_users_own_is_told_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import tardigrad as tg\n"
        "def mine(lr: float, strength: int = 3) -> tg.Rule:\n"
        '    """θ ← θ − η g\n\n'
        '    Args:\n        strength: of it,\n            all of it.\n    """\n'
        "    return tg.rules.sgd(lr)\n"
    )
    with forgotten(tmp_path):
        said = cli("list", "rules", "mine.py:mine")
    assert said.out.splitlines()[:2] == ["mine.py:mine(lr, strength=3)", "θ ← θ − η g"]
    assert re.search(r"^strength +a whole number +3 +of it, all of it\.", said.out, re.M)


def test_a_name_that_is_not_there_names_the_nearest(cli: Cli) -> None:
    said = cli("list", "rules", "gap_awar")
    assert said.code == 2
    assert "there is no rule 'gap_awar'; did you mean 'gap_aware'?" in said.err


def test_traces_are_listed_with_whose_they_are(cli: Cli) -> None:
    said = cli("list", "traces")
    assert said.code == 0
    for name in ("alibaba_job1", "bytedance_se"):
        assert re.search(rf"^{name} .*(CC BY 4\.0|Apache-2\.0)$", said.out, re.M)
    assert "bytedance" not in cli("list", "traces", "alibaba_job1").out
    assert "did you mean 'bytedance_se'?" in cli("list", "traces", "bytedance").err
