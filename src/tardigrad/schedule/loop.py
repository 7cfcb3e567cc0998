"""The event loop: feeds policies from a source of events and records what they decide.

It contains no policy logic. Messages that take no time are delivered at once, first come first
served, before the next event is taken.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from tardigrad.clusters import Absence, Messages
from tardigrad.policies import (
    Apply,
    Arrival,
    Drop,
    Policy,
    PullHalf,
    PushHalf,
    Release,
    Request,
    SetTimer,
    Start,
)
from tardigrad.policies.machine import ShardCommand, WorkerCommand
from tardigrad.schedule.recorder import Recorder
from tardigrad.schedule.sources import ARRIVAL, DECISION, Source


class Loop:
    """One run of control: workers compute, push, wait and pull until every shard has `updates`.

    A shard that has reached `updates` applies nothing more; it answers whoever pushes, so that the
    other shards can come as far.
    """

    def __init__(
        self,
        policy: Policy,
        source: Source,
        recorder: Recorder,
        updates: int | None,
    ) -> None:
        workers, shards = range(recorder.workers), recorder.shards
        self.source = source
        self.recorder = recorder
        self.updates = updates
        self.push_halves: list[PushHalf] = [policy.push_half(workers) for _ in range(shards)]
        self.pull_halves: list[PullHalf] = [policy.pull_half(shards) for _ in workers]
        self.messages: Messages | None = None
        self.now_s = 0.0
        self._present = set(workers)
        self._pushes: dict[tuple[int, int], int] = {}
        self._pulls: dict[tuple[int, int], int] = {}
        self._row = [-1] * recorder.workers
        self._step = [0] * recorder.workers
        self._inbox: deque[tuple[Any, ...]] = deque()

    def expect(self, absences: Sequence[Absence]) -> None:
        """Workers that will leave, and those that will return."""
        for absence in absences:
            self.source.put(absence.leaves_s, ARRIVAL, "leave", (absence.worker,))
            if absence.returns_s is not None:
                self.source.put(absence.returns_s, ARRIVAL, "join", (absence.worker,))

    def run(self) -> None:
        for worker, half in enumerate(self.pull_halves):
            self._do_worker(worker, half.begin())
        while not self.done:
            event = self.source.pop()
            if event is None:
                if self.updates is None:
                    return
                raise ValueError(self._stuck())
            self.now_s = event.now_s
            self._handle(event.kind, event.payload)
            while self._inbox:
                kind, *payload = self._inbox.popleft()
                self._handle(kind, tuple(payload))

    @property
    def done(self) -> bool:
        target = self.updates
        return target is not None and all(half.version >= target for half in self.push_halves)

    def _handle(self, kind: str, payload: tuple[Any, ...]) -> None:
        if kind == "finished":
            (worker,) = payload
            self._finished(worker)
        elif kind == "push":
            shard, arrival = payload
            self._arrived(shard, arrival)
        elif kind == "pull":
            worker, shard, version = payload
            if worker in self._present:
                half = self.pull_halves[worker]
                self._do_worker(worker, half.pulled(shard, version, self.now_s))
        elif kind == "request":
            shard, worker, at_least = payload
            self._do_shard(shard, self.push_halves[shard].on_request(worker, at_least))
        elif kind == "shard_timer":
            shard, token = payload
            self._do_shard(shard, self.push_halves[shard].on_timer(token, self.now_s))
        elif kind == "worker_timer":
            worker, token = payload
            if worker in self._present:
                self._do_worker(worker, self.pull_halves[worker].timer(token, self.now_s))
        elif kind == "leave":
            (worker,) = payload
            self._leave(worker)
        elif kind == "join":
            (worker,) = payload
            self._join(worker)
        else:
            raise AssertionError(kind)

    def _finished(self, worker: int) -> None:
        row = self._row[worker]
        record = self.recorder
        record.finish(row, self.now_s)
        step, stamp, read = record.step[row], record.stamp[row], record.read[row]
        self._do_worker(worker, self.pull_halves[worker].finished(self.now_s))
        for shard, version in enumerate(read):
            self._push(shard, Arrival(row, worker, step, stamp, version))

    def _push(self, shard: int, arrival: Arrival) -> None:
        if self.messages is None:
            self._inbox.append(("push", shard, arrival))
            return
        pair = (arrival.worker, shard)
        sequence = self._pushes[pair] = self._pushes.get(pair, -1) + 1
        at_s = self.now_s + self.messages.push_s(*pair, sequence)
        self.source.put(at_s, ARRIVAL, "push", (shard, arrival))

    def _pull(self, worker: int, shard: int, version: int) -> None:
        if self.messages is None:
            self._inbox.append(("pull", worker, shard, version))
            return
        pair = (worker, shard)
        sequence = self._pulls[pair] = self._pulls.get(pair, -1) + 1
        at_s = self.now_s + self.messages.pull_s(*pair, sequence)
        self.source.put(at_s, ARRIVAL, "pull", (worker, shard, version))

    def _arrived(self, shard: int, arrival: Arrival) -> None:
        half = self.push_halves[shard]
        if self.updates is not None and half.version >= self.updates:
            self._do_shard(shard, [Release(arrival.worker)])
        else:
            self._do_shard(shard, half.on_push(arrival, self.now_s))

    def _do_shard(self, shard: int, commands: Sequence[ShardCommand]) -> None:
        # A release carries the version as of its place among the commands, before or after Apply.
        applies = sum(isinstance(c, Apply) for c in commands)
        version = self.push_halves[shard].version - applies
        for command in commands:
            if isinstance(command, Apply):
                version += 1
                self.recorder.apply(shard, command.rows, command.scale, self.now_s)
            elif isinstance(command, Release):
                self._pull(command.worker, shard, version)
            elif isinstance(command, Drop):
                self.recorder.drop(shard, command.row, command.reason, self.now_s)
            else:
                self._timer(command, "shard_timer", shard)

    def _do_worker(self, worker: int, commands: Sequence[WorkerCommand]) -> None:
        for command in commands:
            if isinstance(command, Start):
                self._start(worker, command.stamp)
            elif isinstance(command, Request):
                self._inbox.append(("request", command.shard, worker, command.at_least))
            else:
                self._timer(command, "worker_timer", worker)

    def _leave(self, worker: int) -> None:
        """Its unfinished gradient is lost; pushes already on their way still arrive."""
        if worker not in self._present:
            return
        self._present.discard(worker)
        self.source.abandon(worker)
        self.recorder.member(worker, False, self.now_s)
        for shard, half in enumerate(self.push_halves):
            self._do_shard(shard, half.on_leave(worker, self.now_s))

    def _join(self, worker: int) -> None:
        if worker in self._present:
            return
        self._present.add(worker)
        self.recorder.member(worker, True, self.now_s)
        self.pull_halves[worker].rejoined()
        for shard, half in enumerate(self.push_halves):
            self._do_shard(shard, half.on_join(worker, self.now_s))

    def _start(self, worker: int, stamp: int) -> None:
        step = self._step[worker]
        read = self.pull_halves[worker].have
        self._row[worker] = self.recorder.start(worker, step, stamp, read, self.now_s)
        self._step[worker] = step + 1
        self.source.compute(worker, step, self.now_s)

    def _timer(self, command: SetTimer, kind: str, who: int) -> None:
        self.source.put(self.now_s + command.seconds, DECISION, kind, (who, command.token))

    def _stuck(self) -> str:
        versions = [half.version for half in self.push_halves]
        why = "all workers are gone" if not self._present else "all workers wait for each other"
        return (
            f"{why}: nothing can happen any more at time {self.now_s:g}, "
            f"and the shards are at versions {versions} of {self.updates}"
        )
