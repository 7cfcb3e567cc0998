"""Processes killed on schedule: the run ends as asked, nothing is lost or twice, and it replays."""

import os
from pathlib import Path

import pytest
import ray
import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.policies import Policy
from tardigrad.recording.cuts import cut_numbers
from tardigrad.recording.disk import FolderDisk
from tardigrad.runtime import ActorPool, fail_at, train
from tardigrad.runtime.faults import Fault
from tardigrad.tasks import TASKS
from tests.runtime.processes_of_runs import kill_driver, until
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays
from tests.runtime.spare_pool import SparePool

TASK = TASKS["logistic_regression"]()
RULE = rules.RULES["dana_ga"](lr=0.02)
TIMES = tg.Gamma(workers=3, mean_s=0.02)
"""Imposed, so that there is still something to do when the replacement comes."""

WORKER_MOMENTS = ["before_push", "between_pushes", "after_push"]
SHARD_MOMENTS = ["before_log", "before_release", "after_release"]


def survive(
    pool: ActorPool,
    folder: Path,
    policy: Policy,
    faults: list[Fault],
    updates: int = 80,
    cut_every: int = 0,
) -> tg.Run:
    said: list[str] = []
    run = train(
        TASK, RULE, policy, workers=3, shards=2, updates=updates,
        checkpoints=tg.Checkpoints(folder, cut_every),
        processes=tg.Processes(pool=pool, digest_every=10),
        scenario=tg.Scenario(impose=TIMES, faults=faults), say=said.append,
    )  # fmt: skip
    if len(faults) == 1:  # else one that replaced another for another reason may have none
        who = f"{faults[0].kind} {faults[0].number}"
        assert any(line.startswith(f"{who} died (") for line in said)
    assert_replays(run, TASK, RULE, updates)
    came = assert_nothing_lost_or_twice(folder, 2, updates)
    if not isinstance(policy, tg.Partial):  # under which a shard may be rounds behind at the end
        assert len(came[0] ^ came[1]) <= 3  # at most one a worker, under way at the end
    return run


def test_a_killed_worker_is_replaced_and_changes_no_number(pool: ActorPool, tmp_path: Path) -> None:
    """Between its pushes, so that one shard has the gradient and the other has not. Under Sync that
    changes when things happen and nothing else."""
    hard = survive(pool, tmp_path / "hard", tg.Sync(), [fail_at(worker=1, step=5)], updates=30)
    assert (hard.schedule.applied == 30).all()  # nobody missed a round
    calm = survive(pool, tmp_path / "calm", tg.Sync(), [], updates=30)
    assert torch.equal(calm.params, hard.params)


def test_a_killed_shard_comes_back_from_a_cut_and_the_logs(pool: ActorPool, tmp_path: Path) -> None:
    faults = [fail_at(shard=0, version=43)]
    survive(pool, tmp_path, tg.Async(), faults, updates=160, cut_every=20)
    assert len(cut_numbers(FolderDisk(tmp_path))) == 2


def test_a_worker_and_a_shard_die_together_and_leave_no_shared_memory(
    pool: ActorPool, tmp_path: Path
) -> None:
    faults = [fail_at(worker=2, step=7), fail_at(shard=1, version=20, moment="after_release")]
    before = set(os.listdir("/dev/shm"))
    survive(pool, tmp_path, tg.StaleSynchronous(bound=2), faults)
    new = set(os.listdir("/dev/shm")) - before
    # Semaphores are of other programs on this machine: there are none here.
    left = {name for name in new if "plasma" not in name and not name.startswith("sem.")}
    until(lambda: not left & set(os.listdir("/dev/shm")))  # what others have there, they take away


def test_a_gradient_of_a_dead_worker_is_applied_long_after_it_was_replaced(
    pool: SparePool, tmp_path: Path
) -> None:
    """The others are so slow that its first gradient still waits at one shard by then; a spare
    actor replaces it at once."""
    pool.have_ready(workers=4)
    slow = tg.Constant(workers=3, step_s=(0.01, 1.0, 1.0))
    run = train(
        TASK, RULE, tg.Sync(), workers=3, shards=2, updates=2,
        checkpoints=tg.Checkpoints(tmp_path), processes=tg.Processes(pool=pool, digest_every=1),
        scenario=tg.Scenario(impose=slow, faults=[fail_at(worker=0, step=0)]),
    )  # fmt: skip
    assert_replays(run, TASK, RULE, 2)
    assert (run.schedule.applied == 2).all()


@pytest.mark.stress
@pytest.mark.parametrize("repetition", range(5))
@pytest.mark.parametrize("moment", WORKER_MOMENTS)
@pytest.mark.parametrize(
    "policy",
    [tg.Async(), tg.Sync(), tg.Backup(1), tg.Partial(push=2, pull=0.5)],
    ids=lambda p: type(p).__name__,
)
def test_workers_die_at_every_moment(
    policy: Policy, moment: str, repetition: int, pool: ActorPool, tmp_path: Path
) -> None:
    faults = [fail_at(worker=repetition % 3, step=3 * repetition, moment=moment)]
    survive(pool, tmp_path, policy, faults)


@pytest.mark.stress
@pytest.mark.parametrize("repetition", range(5))
@pytest.mark.parametrize("moment", SHARD_MOMENTS)
@pytest.mark.parametrize(
    "policy",
    [tg.Async(), tg.Sync(), tg.Partial(push=2, push_timeout_s=0.01, pull=0.5)],
    ids=lambda p: type(p).__name__,
)
def test_shards_die_at_every_moment(
    policy: Policy, moment: str, repetition: int, pool: ActorPool, tmp_path: Path
) -> None:
    faults = [fail_at(shard=repetition % 2, version=1 + 13 * repetition, moment=moment)]
    survive(pool, tmp_path, policy, faults, cut_every=25 if repetition % 2 else 0)


DRIVER = """
import sys
from pathlib import Path
import tardigrad as tg
from tardigrad import rules
from tardigrad.tasks import TASKS
folder, address = sys.argv[1:]
tg.train(
    TASKS["logistic_regression"](), rules.RULES["dana_ga"](lr=0.02), tg.Sync(), workers=2, shards=2,
    updates=60, evaluation=20, checkpoints=tg.Checkpoints(folder, every=10),
    processes=tg.Processes(address, digest_every=10),
    scenario=tg.Scenario(impose=tg.Gamma(workers=3, mean_s=0.02)),
)
"""


def kill_driver_and_resume(pool: ActorPool, folder: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    before = kill_driver(DRIVER, [str(folder), address], folder, 25)
    run = train(
        TASK, RULE, tg.Sync(), workers=2, shards=2, updates=60, evaluation=20,
        checkpoints=tg.Checkpoints(folder, every=10, resume=True),
        processes=tg.Processes(pool=pool, digest_every=10), scenario=tg.Scenario(impose=TIMES),
    )  # fmt: skip
    assert before < 60
    assert_replays(run, TASK, RULE, 60)
    assert_nothing_lost_or_twice(folder, 2, 60)
    assert run.history.column("update") == [0, 20, 40, 60]


def test_a_killed_driver_is_resumed(pool: ActorPool, tmp_path: Path) -> None:
    kill_driver_and_resume(pool, tmp_path / "run")
    with pytest.raises(ValueError, match="has finished: there is nothing to do"):
        train(
            TASK, RULE, tg.Sync(), workers=2, shards=2, updates=60,
            checkpoints=tg.Checkpoints(tmp_path / "run", resume=True),
            processes=tg.Processes(pool=pool, digest_every=10),
        )  # fmt: skip


def test_a_run_whose_driver_died_before_it_wrote_the_record_is_completed(
    pool: ActorPool, tmp_path: Path
) -> None:
    """From its files alone: there is nothing to train any more."""
    run = survive(pool, tmp_path, tg.Async(), [])
    record = tmp_path / "record.json"
    written = record.read_text()
    record.write_text(written.replace('"finished": true', '"finished": false'))
    again = train(
        TASK, RULE, tg.Async(), workers=3, shards=2, updates=80,
        checkpoints=tg.Checkpoints(tmp_path, resume=True), processes=tg.Processes(digest_every=10),
    )  # fmt: skip
    assert torch.equal(again.params, run.params)
    assert again.schedule.digest == run.schedule.digest
    assert record.read_text() == written


@pytest.mark.stress
@pytest.mark.parametrize("repetition", range(5))
def test_drivers_are_resumed(repetition: int, pool: ActorPool, tmp_path: Path) -> None:
    kill_driver_and_resume(pool, tmp_path / "run")
