"""Finished runs on Ray that are given more updates."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad.policies import Policy
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.epochs import EXTEND, Epochs, Length
from tardigrad.recording.record import read_record
from tardigrad.runtime import ActorPool, fail_at, train
from tardigrad.tasks import TASKS
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

TASK = TASKS["logistic_regression"]()
RULE = tg.rules.dana_ga(lr=0.02)
FIRST, THEN = 40, 90


def made(pool: ActorPool, folder: Path, policy: Policy | None = None, **more: Any) -> tg.Run:
    given: dict[str, Any] = {"workers": 2, "shards": 2, "updates": FIRST, "evaluation": 20}
    given |= {"checkpoints": tg.Checkpoints(folder, every=15)}
    given |= {"processes": tg.Processes(pool=pool, digest_every=10)}
    return train(TASK, RULE, policy, **given | more)


def longer(pool: ActorPool, folder: Path, policy: Policy | None = None, **more: Any) -> tg.Run:
    going_on = tg.Checkpoints(folder, every=15, resume=True)
    return made(pool, folder, policy, **{"updates": THEN, "checkpoints": going_on} | more)


POLICIES = (
    tg.Async(),
    tg.Sync(),
    tg.Deadline(timeout_s=0.02),
    tg.Partial(push=1, push_timeout_s=0.01),
)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_an_extended_run_goes_on_while_processes_die(
    policy: Policy, pool: ActorPool, tmp_path: Path
) -> None:
    first = made(pool, tmp_path, policy)
    faults = [fail_at(shard=1, version=60), fail_at(worker=0, step=70)]
    said: list[str] = []
    run = longer(pool, tmp_path, policy, scenario=tg.Scenario(faults=faults), say=said.append)
    dead = {line.partition(" died (")[0] for line in said if " died (" in line}
    # By how many steps a worker comes is its own matter, but where all wait for all.
    assert dead >= ({"shard 1", "worker 0"} if isinstance(policy, tg.Sync) else {"shard 1"})
    assert_replays(run, TASK, RULE, THEN)
    assert_nothing_lost_or_twice(tmp_path, 2, THEN)
    assert run.history.column("update") == [0, 20, 40, 60, 80]
    assert run.history.records[:3] == first.history.records
    assert run.history.loss[:FIRST] == first.history.loss
    record = read_record(tmp_path)
    assert (record["finished"], record["updates"], record["ended_by"]) == (True, THEN, "updates")
    assert tg.replay(tmp_path, task=TASK, rule=RULE).difference is None


def test_an_extended_run_is_extended_again_from_the_numbers_of_its_end(
    pool: ActorPool, tmp_path: Path
) -> None:
    ends = [made(pool, tmp_path, shards=1)]
    ends += [longer(pool, tmp_path, shards=1, updates=updates) for updates in (60, THEN)]
    run = ends[-1]
    for end in ends:
        again = tg.replay(run, until=end.schedule.updates).run
        assert torch.equal(again.params, end.params)
    with pytest.raises(ValueError, match=r"has finished: .* unless it gets more updates than 90"):
        longer(pool, tmp_path, shards=1)


def test_a_driver_that_died_when_it_had_just_begun_to_extend_is_resumed(
    pool: ActorPool, tmp_path: Path
) -> None:
    """Its record still says that the run has finished."""
    made(pool, tmp_path)
    Epochs(FolderDisk(tmp_path), "the dead one", Length(THEN, FIRST)).take(EXTEND)
    with pytest.raises(ValueError, match="a run of 90 updates, which cannot be made one of 40"):
        longer(pool, tmp_path, updates=FIRST)
    assert_replays(longer(pool, tmp_path), TASK, RULE, THEN)
    assert_nothing_lost_or_twice(tmp_path, 2, THEN)


def test_a_run_that_is_being_extended_has_no_result(pool: ActorPool, tmp_path: Path) -> None:
    made(pool, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        longer(pool, tmp_path, watch=_interrupted)
    with pytest.raises(ValueError, match="holds a run that was stopped: finish it by"):
        tg.Run.load(tmp_path, task=TASK, rule=RULE)
    assert not read_record(tmp_path)["finished"]
    assert_replays(longer(pool, tmp_path), TASK, RULE, THEN)


def _interrupted(live: object) -> None:
    raise KeyboardInterrupt


def test_a_run_whose_workers_may_be_ahead_of_a_shard_is_not_extended(
    pool: ActorPool, tmp_path: Path
) -> None:
    policy = tg.PartialPull(tg.Sync(), pull=0.5)
    made(pool, tmp_path, policy)
    record = read_record(tmp_path)
    with pytest.raises(ValueError, match="PartialPull lets workers start before all 2 shards have"):
        longer(pool, tmp_path, policy)
    assert read_record(tmp_path) == record


def test_a_run_that_has_diverged_is_not_extended(pool: ActorPool, tmp_path: Path) -> None:
    task = tg.FunctionTask(torch.full((6,), 1e38), lambda view, worker, step: view)
    rule = tg.rules.sgd(lr=1e30)
    options: dict[str, Any] = {"updates": 1, "processes": tg.Processes(pool=pool)}
    with pytest.raises(tg.Diverged):
        train(task, rule, workers=1, checkpoints=tg.Checkpoints(tmp_path), **options)
    options |= {"updates": 9, "checkpoints": tg.Checkpoints(tmp_path, resume=True)}
    with pytest.raises(ValueError, match=r"has diverged \(a parameter is .*\): .* start another"):
        train(task, rule, workers=1, **options)
