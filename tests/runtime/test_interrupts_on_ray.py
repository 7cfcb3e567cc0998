"""Workers on Ray that are interrupted: the run replays bit for bit, whatever died on the way."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad import rules
from tardigrad.policies import Policy
from tardigrad.protocol.messages import WorkerInterrupted
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.shard_logs import read_story
from tardigrad.runtime import ActorPool, fail_at, train
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

SLOW, BATCHES, BATCH_S = 2, 10, 0.04
RULE = rules.RULES["gap_aware"](lr=0.02)


def slowed(view: Tensor, worker: int, step: int) -> Tensor:
    # The others take some time too, else all is over before the slow one has said that it stopped.
    if threading.current_thread() is not threading.main_thread():  # where it is replayed
        time.sleep(BATCH_S if worker == SLOW else BATCH_S / 40)
    return view * (1 + 0.01 * ((7 * worker + step) % 5))


TASK = tg.FunctionTask(torch.linspace(-1, 1, 12), slowed)
WORK = tg.MicroBatches(BATCHES)
POLICIES: list[Policy] = [tg.Ringmaster(4, stop=True), tg.Rennala(4, stop=True)]


def check_interrupted(run: tg.Run, folder: Path, updates: int) -> None:
    """The slow one was, between its batches; shards have logged that they told it to stop."""
    assert_replays(run, TASK, RULE, updates, work=WORK)
    assert_nothing_lost_or_twice(folder, 2, updates)
    made = run.schedule
    stopped = np.flatnonzero(made.interrupted & (made.worker == SLOW))
    assert len(stopped) > 0
    assert (made.end_s[stopped] - made.start_s[stopped]).min() < BATCHES * BATCH_S
    for shard in range(2):
        entries = read_story(FolderDisk(folder), shard).entries
        assert any(isinstance(d, WorkerInterrupted) for entry in entries for d in entry.decided)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_slow_worker_is_interrupted_between_its_batches(
    policy: Policy, pool: ActorPool, tmp_path: Path
) -> None:
    run = train(
        TASK, RULE, policy, workers=3, shards=2, updates=40, work=WORK,
        checkpoints=tg.Checkpoints(tmp_path), processes=tg.Processes(pool=pool, digest_every=10),
    )  # fmt: skip
    check_interrupted(run, tmp_path, 40)


@pytest.mark.parametrize(
    "moment", ["between_pushes", pytest.param("before_push", marks=pytest.mark.stress)]
)
def test_interrupted_workers_that_die_are_replaced(
    moment: str, pool: ActorPool, tmp_path: Path
) -> None:
    """The slow one in its second step, which is interrupted; a fast one; and a cut after each ten
    updates."""
    faults = [fail_at(worker=SLOW, step=1, moment=moment), fail_at(worker=0, step=9)]
    run = train(
        TASK, RULE, POLICIES[0], workers=3, shards=2, updates=60, work=WORK,
        checkpoints=tg.Checkpoints(tmp_path, 10),
        processes=tg.Processes(pool=pool, digest_every=10),
        scenario=tg.Scenario(faults=faults),
    )  # fmt: skip
    check_interrupted(run, tmp_path, 60)


def test_an_imposed_step_ends_when_it_is_interrupted(pool: ActorPool) -> None:
    """Of one gradient, which is there at once: what is interrupted is the wait."""
    task = tg.FunctionTask(torch.linspace(-1, 1, 12), lambda view, worker, step: view)
    times = tg.Constant(3, (0.01, 0.01, 100.0))
    run = train(
        task, RULE, tg.Ringmaster(4, stop=True), workers=3, shards=2, updates=60,
        processes=tg.Processes(pool=pool), scenario=tg.Scenario(impose=times),
    )  # fmt: skip
    assert_replays(run, task, RULE, 60)
    made = run.schedule
    stopped = made.interrupted & (made.worker == 2)
    assert stopped.sum() > 3
    assert (made.end_s - made.start_s)[stopped].max() < 50.0
