"""A run of a few workers and shards in one process and one folder, without faults.

Messages wait in a queue for each pair; which queue delivers next is drawn by key, so that every
order which a network may produce can come up, and the same seed gives the same run.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tardigrad.core import keys
from tardigrad.core.layout import Sharding
from tardigrad.policies import Policy
from tardigrad.protocol.calls import LeaveWorker, OpenShard, SaveCut, ShardCall
from tardigrad.protocol.messages import FromShard, FromWorker, Hello, PushHeader, TimerSet
from tardigrad.protocol.worker_outputs import Compute, Forget, Send, WorkerOutput, WorkerTimer
from tardigrad.protocol.worker_session import WorkerStart
from tardigrad.recording.cuts import finish_cut, next_cut
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.replica import ShardReplica
from tardigrad.recording.setup import RunSetup
from tardigrad.rules import Rule
from tardigrad.runtime.shard_process import ShardOut, ShardProcess, shard_origin
from tardigrad.runtime.worker_process import WorkerProcess
from tardigrad.tasks import Task

Look = Callable[["SmallRun"], None]


def make_setup(
    task: Task, rule: Rule, policy: Policy, shards: int = 2, workers: int = 3, updates: int = 40
) -> RunSetup:
    sharding = Sharding.divide(task.layout, shards)
    return RunSetup(task, rule, policy, sharding, workers, updates, digest_every=10)


class SmallRun:
    """Until every shard is done; `look` is called after everything that happens at a shard."""

    def __init__(
        self, setup: RunSetup, folder: Path, seed: int = 0, look: Look | None = None
    ) -> None:
        self.setup, self.folder = setup, folder
        self.disk = FolderDisk(folder)
        recovered = RecoveredRun(setup, self.disk)
        self.shards = [
            ShardProcess(setup, self.disk, shard_origin(recovered, shard, epoch=1))
            for shard in range(setup.shards)
        ]
        self.workers = {
            worker: WorkerProcess(
                setup,
                WorkerStart(worker, 0, 0, worker, (0,) * setup.shards, (1,) * setup.shards),
                _copy,
            )
            for worker in range(setup.workers)
        }
        for shard in self.shards:
            shard.call(OpenShard(setup.updates), 0.0)
        self.happened = 0
        """Events at shards."""
        self._look = look or (lambda run: None)
        self._stream = keys.key(seed, "network")
        self._drawn = 0
        self._queues: dict[tuple[str, int, int], deque[Callable[[], None]]] = {}

    @property
    def now_s(self) -> float:
        return float(self._drawn)

    @property
    def params(self) -> torch.Tensor:
        return torch.cat([shard.replica.shard.theta for shard in self.shards])

    def run(self) -> "SmallRun":
        for number, worker in self.workers.items():
            self._carry_out(number, worker.session.begin(0.0))
        while not all(shard.done for shard in self.shards):
            waiting = [key for key, queue in self._queues.items() if queue]
            assert waiting, "nothing can happen any more"
            self._drawn += 1
            drawn = keys.integers(self._stream, np.array([self._drawn]), len(waiting))
            self._queues[waiting[int(drawn[0])]].popleft()()
        self.disk.close()
        return self

    # What a test does to it.

    def call(self, shard: int, call: ShardCall) -> Any:
        """What a driver asks."""
        answer, out = self.shards[shard].call(call, self.now_s)
        self._say(shard, out)
        return answer

    def cut(self) -> None:
        """At a moment in which no gradient is with one shard only, as a driver sees to it."""
        number = next_cut(self.disk)
        finish_cut(
            self.disk, number, [self.call(s, SaveCut(number)) for s in range(len(self.shards))]
        )

    def leave(self, worker: int) -> None:
        for shard in range(len(self.shards)):
            self.call(shard, LeaveWorker(worker))
        self.forget_worker(worker)

    def forget_worker(self, worker: int) -> None:
        del self.workers[worker]
        for key in [key for key in self._queues if key[1] == worker]:
            del self._queues[key]

    # What is carried.

    def _put(self, kind: str, worker: int, shard: int, do: Callable[[], None]) -> None:
        self._queues.setdefault((kind, worker, shard), deque()).append(do)

    def _carry_out(self, number: int, out: Sequence[WorkerOutput]) -> None:
        worker = self.workers[number]
        for item in out:
            match item:
                case Send(shard, message):
                    self._put("up", number, shard, partial(self._hear, shard, message))
                case Compute():
                    worker.load(item)
                    self._put("compute", number, 0, partial(self._computed, number, item))
                case Forget():
                    worker.forget(item)
                case WorkerTimer(_, token):
                    self._put("timer", number, token, partial(self._rang, number, token))

    def _computed(self, number: int, compute: Compute) -> None:
        worker = self.workers[number]
        computed = worker.gradient(compute)
        self._carry_out(number, worker.computed(compute, computed, self.now_s, self.now_s))

    def _rang(self, number: int, token: int) -> None:
        self._carry_out(number, self.workers[number].session.timer(token, self.now_s))

    def _hear(self, shard: int, message: FromWorker | Hello) -> None:
        part = None
        if isinstance(message, FromWorker) and isinstance(message.body, PushHeader):
            part = self.workers[message.worker].part(message.body, shard)
        self._happened(shard, self.shards[shard].hear(message, part, self.now_s))

    def _ring(self, shard: int, token: int) -> None:
        self._happened(shard, self.shards[shard].rang(token, self.now_s))

    def _happened(self, shard: int, out: Sequence[ShardOut]) -> None:
        self._say(shard, out)
        self.happened += 1
        self._look(self)

    def _say(self, shard: int, out: Sequence[ShardOut]) -> None:
        for item in out:
            if isinstance(item, TimerSet):
                ring = partial(self._ring, shard, item.token)
                self._put("shard's timer", -1 - shard, item.token, ring)
            elif item.worker in self.workers:
                sent = self.shards[shard].replica.sent
                payloads = [sent[released.version] for released in item.releases]
                self._put("down", item.worker, shard, partial(self._told, item, payloads))

    def _told(self, message: FromShard, payloads: Sequence[torch.Tensor]) -> None:
        worker = self.workers[message.worker]
        self._carry_out(message.worker, worker.session.hear(message, payloads, self.now_s))


def _copy(payload: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(payload)


def same_state(one: ShardReplica, other: ShardReplica) -> bool:
    """Whether two shards are the same to the last bit."""
    mine, theirs = one.tensors(), other.tensors()
    return (
        one.facts() == other.facts()
        and mine.keys() == theirs.keys()
        and all(np.array_equal(mine[name].numpy(), theirs[name].numpy()) for name in mine)
        and one.session.channels == other.session.channels
        and one.session.timers == other.session.timers
    )
