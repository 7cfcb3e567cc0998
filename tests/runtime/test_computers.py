"""Runs whose processes are on computers of several kinds."""

from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad.core.computer import computer
from tardigrad.recording.record import read_record
from tardigrad.runtime import ActorPool, fail_at, train
from tardigrad.runtime.computers import Computers
from tardigrad.tasks import TASKS
from tests.runtime.run_checks import assert_nothing_lost_or_twice

TASK, RULE = TASKS["logistic_regression"](), tg.rules.sgd(lr=0.05)


def test_they_are_noted_once_and_known_to_the_next_driver(tmp_path: Path) -> None:
    told: list[str] = []
    computers = Computers(tmp_path, told.append)
    computers.note("shard 0", computer())
    computers.note("worker 0", computer())
    assert (computers.alike, told) == (True, [])
    computers.note("worker 1", "a cray")
    assert not computers.alike
    (line,) = told
    assert line.startswith(f"worker 1 is on a cray, where other processes are on {computer()}: ")
    again = Computers(tmp_path, told.append)
    assert again.seen == [computer(), "a cray"]
    again.note("worker 1", "a cray")
    assert len(told) == 1


def test_a_shard_is_brought_back_on_another_kind_and_a_replay_is_refused(
    pool: ActorPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver takes itself for another kind than its actors, and its numbers for theirs."""
    monkeypatch.setattr("tardigrad.runtime.driver.computer", lambda: "a cray")
    monkeypatch.setattr("tardigrad.runtime.computers.computer", lambda: "a cray")
    said: list[str] = []
    run = train(
        TASK, RULE, tg.Async(), workers=2, shards=2, updates=60,
        checkpoints=tg.Checkpoints(tmp_path), processes=tg.Processes(pool=pool, digest_every=5),
        scenario=tg.Scenario(
            impose=tg.Constant(workers=2, step_s=0.02), faults=[fail_at(shard=1, version=20)]
        ),
        say=said.append,
    )  # fmt: skip
    assert any(line.startswith("the driver is on a cray, where other") for line in said)
    assert_nothing_lost_or_twice(tmp_path, 2, 60)
    assert read_record(tmp_path)["computers"] == [computer(), "a cray"]
    with pytest.raises(ValueError, match=r"computed on .* and on a cray"):
        tg.replay(run)
    assert tg.replay(run, force=True).difference is None


def test_actors_say_what_they_are_on(pool: ActorPool, tmp_path: Path) -> None:
    run = train(
        TASK, RULE, updates=4, processes=tg.Processes(pool=pool),
        checkpoints=tg.Checkpoints(tmp_path),
    )  # fmt: skip
    assert run.provenance is not None
    assert run.provenance.computers == (computer(),)
    assert read_record(tmp_path)["computers"] == [computer()]
