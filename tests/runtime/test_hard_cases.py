"""What users meet: stopped processes, two drivers, a log that cannot be written, errors in code of
their own. Every run returns, or ends with an error that says why, and its actors can be used again.
"""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad import rules
from tardigrad.policies import Policy, PullHalf, PushHalf
from tardigrad.policies.machine import ShardCommand, WorkerCommand
from tardigrad.protocol.run_processes import Patience, RunFailed
from tardigrad.recording.epochs import Deposed
from tardigrad.recording.record import read_record
from tardigrad.rules import Sgd
from tardigrad.runtime import ActorPool, train
from tardigrad.tasks import TASKS, Task
from tests.runtime.processes_of_runs import (
    beside,
    shard_process,
    until,
    wait_for_a_cut,
    wait_for_updates,
)
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

TASK = TASKS["logistic_regression"]()
RULE = rules.RULES["dana_ga"](lr=0.02)
UPDATES = 60
TIMES = tg.Gamma(workers=3, mean_s=0.01)
LONG = tg.Gamma(workers=3, mean_s=0.05)
"""For a run that something is to happen to meanwhile."""
HASTY = Patience(answer_s=4.0, attend_s=0.5)


def trained(
    pool: ActorPool,
    folder: Path | None = None,
    policy: Policy | None = None,
    task: Task = TASK,
    rule: tg.Rule = RULE,
    cut_every: int = 15,
    resume: bool = False,
    said: list[str] | None = None,
    patience: Patience = HASTY,
    times: tg.Gamma = TIMES,
    workers: int = 3,
    shards: int = 2,
) -> tg.Run:
    run = train(
        task,
        rule,
        policy,
        workers=workers,
        shards=shards,
        updates=UPDATES,
        checkpoints=tg.Checkpoints(folder, cut_every if folder else 0, resume),
        processes=tg.Processes(pool=pool, digest_every=10, patience=patience),
        scenario=tg.Scenario(impose=times),
        say=None if said is None else said.append,
    )
    assert_replays(run, task, rule, UPDATES)
    if folder is not None:
        assert_nothing_lost_or_twice(folder, shards, UPDATES)
    return run


class StoppingTask:
    """A gradient during which worker 1's process is stopped, once."""

    def __init__(self, folder: Path, step: int) -> None:
        self.pid = folder / "stopped"
        self.step = step

    def __call__(self, view: Tensor, worker: int, step: int) -> Tensor:
        if (worker, step) == (1, self.step) and not self.pid.exists():
            self.pid.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return 0.1 * view + worker


def there(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    return False


@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()], ids=["async", "sync"])
def test_a_stopped_worker_is_replaced_and_the_run_returns(
    policy: Policy, tmp_path: Path, pool: ActorPool
) -> None:
    """Nobody waits for it without limit: neither who needs its gradient, nor a cut, nor the end."""
    said: list[str] = []
    stopping = StoppingTask(tmp_path, step=4)
    task = tg.FunctionTask(torch.ones(12), stopping)
    soon = replace(HASTY, answer_s=1.5)
    trained(pool, tmp_path / "run", policy, task, said=said, patience=soon)
    assert any(line.startswith("worker 1 died (it does not answer") for line in said)
    until(lambda: not there(int(stopping.pid.read_text())))


def test_of_two_drivers_the_second_is_refused_or_deposes_the_first(
    tmp_path: Path, pool: ActorPool
) -> None:
    few: dict[str, Any] = {"workers": 2, "shards": 1}  # so that there are processes for both
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(trained, pool, tmp_path, tg.Sync(), times=LONG, **few)
        wait_for_updates(tmp_path, 10)
        me = rf"being written to by another driver \(process {os.getpid()} on"
        with pytest.raises(ValueError, match=me):
            trained(pool, tmp_path, tg.Sync(), resume=True, **few)
        (tmp_path / "driver.lock").unlink()  # as if the folder's system could not lock
        trained(pool, tmp_path, tg.Sync(), resume=True, **few)
        with pytest.raises(Deposed, match=r"another driver \(process .* has taken over this run"):
            first.result()
    assert read_record(tmp_path)["finished"]
    trained(pool, tmp_path / "after", tg.Sync())  # the deposed one's actors are no hindrance


def test_a_log_that_cannot_be_written_ends_the_run_with_the_reason(
    tmp_path: Path, pool: ActorPool
) -> None:
    """After a few tries: a disk may have been full for a moment."""
    said: list[str] = []
    (tmp_path / "logs").mkdir()
    for epoch in range(1, 40):
        (tmp_path / f"logs/shard-1.{epoch:08d}.log").symlink_to("/dev/full")
    with pytest.raises(RunFailed, match=r"shard 1 died 2 times .* No space left on device"):
        trained(pool, tmp_path, patience=replace(HASTY, deaths=1), said=said)
    assert len([line for line in said if line.startswith("shard 1 died")]) == 2


@pytest.mark.parametrize("kind", ["shard", "worker"])
def test_a_process_that_is_killed_in_a_cut_is_brought_back(
    kind: str, tmp_path: Path, pool: ActorPool
) -> None:
    said: list[str] = []
    pids = tmp_path / "pids"
    pids.mkdir()

    def gradient(view: Tensor, worker: int, step: int) -> Tensor:
        if not (pids / str(worker)).exists():
            (pids / str(worker)).write_text(str(os.getpid()))
        return 0.1 * view + worker

    def kill() -> None:
        folder = tmp_path / "run"
        wait_for_a_cut(folder)
        pid = shard_process(folder, 1) if kind == "shard" else int((pids / "1").read_text())
        os.kill(pid, signal.SIGKILL)

    with beside(kill):
        task = tg.FunctionTask(torch.ones(12), gradient)
        trained(pool, tmp_path / "run", tg.Sync(), task, cut_every=5, said=said)
    assert any(line.startswith(f"{kind} 1 died (") for line in said)


class OwnError(Exception):
    """Of a user's code."""


@dataclass(frozen=True)
class FailsAtTimer(tg.Deadline):
    """A policy whose shards fail when their timer rings."""

    def push_half(self, workers: Any) -> PushHalf:
        half = super().push_half(workers)

        def timer(token: int, now_s: float) -> list[ShardCommand]:
            raise OwnError("at a shard's timer")

        half.timer = timer  # type: ignore[method-assign]
        return half


@dataclass(frozen=True)
class FailsAtPull(tg.Async):
    """A policy whose workers fail when they hear of version 5."""

    def pull_half(self, shards: int) -> PullHalf:
        half = super().pull_half(shards)
        pulled = half.pulled

        def fail(shard: int, version: int, now_s: float) -> list[WorkerCommand]:
            if version > 5:
                raise OwnError("at a worker's pull")
            return pulled(shard, version, now_s)

        half.pulled = fail  # type: ignore[method-assign]
        return half


class FailsElsewhere(tg.FunctionTask):
    """Its parameters can be made in the process that it was made in, and nowhere else."""

    def __init__(self) -> None:
        super().__init__(torch.ones(12), fails_at_step_6)
        self.home = os.getpid()

    def start(self) -> Tensor:
        if os.getpid() != self.home:
            raise OwnError("in preparing")
        return super().start()


def fails_at_step_6(view: Tensor, worker: int, step: int) -> Tensor:
    if (worker, step) == (1, 6):
        raise OwnError("in a gradient")
    return view


@dataclass(frozen=True)
class FailsAtUpdate5(Sgd):
    """A rule's part that fails at a shard."""

    def host(self, count: int) -> tuple[float, ...]:
        if count == 5:
            raise OwnError("in an update")
        return ()


ERRORS: dict[str, dict[str, Any]] = {
    "at a shard's timer": {"policy": FailsAtTimer(timeout_s=0.05)},
    "at a worker's pull": {"policy": FailsAtPull()},
    "in preparing": {"task": FailsElsewhere()},
    "in a gradient": {"task": tg.FunctionTask(torch.ones(12), fails_at_step_6)},
    "in an update": {"rule": tg.Rule(0.02, FailsAtUpdate5())},
}


@pytest.mark.parametrize("where", ERRORS)
def test_an_error_in_a_users_code_ends_the_run_with_it(where: str, pool: ActorPool) -> None:
    with pytest.raises(OwnError, match=where):
        trained(pool, **ERRORS[where])
