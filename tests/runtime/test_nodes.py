"""Nodes that come and go. Room is waited for where it may come, with a word, and refused with what
is missing; a run survives a node that is lost with its processes.

One cluster serves all: it takes longer to start than to use."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.processes_of_runs import own_cluster


def changed(folder: Path) -> Any:
    """What came of runs on a cluster whose second node comes and goes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.changing_cluster", str(folder)], capture_output=True,
        text=True, timeout=280, env=own_cluster(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = [line for line in done.stdout.splitlines() if line.startswith("{")]  # Ray tells too
    return json.loads(found)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return changed(tmp_path_factory.mktemp("changed") / "run")


def assert_lost_and_brought_back(said: list[str]) -> None:
    """Both that it had; that all of it replays is checked where it was made."""
    assert {line.split()[0] for line in said if " died (" in line} == {"shard", "worker"}


def test_a_run_waits_for_nodes_that_come(found: Any) -> None:
    who = "2 workers (1 CPU each) and 2 shards (1 CPU each)"
    why = "4 CPUs are needed, and 2 of 2 are free"
    assert any(f" s for room for {who}: {why}" in line for line in found["said"])


def test_a_run_for_which_no_node_comes_is_refused_with_what_is_missing(found: Any) -> None:
    who = "2 workers (1 CPU, 0.5 GPUs each) and 1 shard (1 CPU each)"
    why = "3 CPUs are needed, and 2 of 2 are free; no node has 0.5 GPUs (the most on one is 0)"
    assert (
        f"no room on the cluster for {who} after 1 s of waiting: {why}. Ask for less"
        in (found["refused"]["error"])
    )


def test_a_lost_node_is_survived(found: Any) -> None:
    assert_lost_and_brought_back(found["said"])


def test_workers_are_spread_or_packed(found: Any) -> None:
    assert found["nodes"] == {"spread": 2, "pack": 1}


@pytest.mark.stress
@pytest.mark.parametrize("repetition", range(5))
def test_lost_nodes_are_survived(repetition: int, tmp_path: Path) -> None:
    assert_lost_and_brought_back(changed(tmp_path / "run")["said"])
