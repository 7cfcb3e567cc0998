"""The event loop: feeds policies from a source of events and records what they decide.

It contains no policy logic. Messages that take no time are delivered at once, first come first
served, before the next event is taken.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
    Start,
)
from tardigrad.policies.machine import ShardCommand, WorkerCommand
from tardigrad.scheduling.recorder import Recorder
from tardigrad.scheduling.sources import ARRIVAL, DECISION, EventSource
from tardigrad.scheduling.wire import Wire


class ControlLoop:
    """One run of control: workers compute, push, wait and pull until every shard has `updates`.

    A shard that has reached `updates` applies nothing more; it answers whoever pushes, so that the
    other shards can come as far.

    A worker's *stays* are numbered, and every message to or from it belongs to one. What it had
    pushed before it left arrives and is applied, also when it is back by then, but is not answered,
    and no policy takes it for a worker that has come (`Partial(push=…)` counts gradients, whoever
    made them); answers, requests and timers of an earlier stay count no more.
    """

    def __init__(
        self,
        policy: Policy,
        source: EventSource,
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
        self.wire: Wire | None = None
        """What a link lets through; None: everything."""
        self.now_s = 0.0
        self._present = set(workers)
        self._stay = [0] * recorder.workers
        self._pushes: dict[tuple[int, int], int] = {}
        self._pulls: dict[tuple[int, int], int] = {}
        self._row = [-1] * recorder.workers
        self._step = [0] * recorder.workers
        self._short = shards
        self._version = [0] * shards
        """As of the command that is being carried out: a release may stand before its Apply."""
        self._unheard: set[int] = set()  # shards that something reached after they stopped for good
        self._inbox: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._handlers: dict[str, Callable[..., None]] = {
            "finished": self._finished,
            "push": self._arrived,
            "header": self._header,
            "pull": self._pulled,
            "request": self._requested,
            "shard_timer": self._shard_timer,
            "worker_timer": self._worker_timer,
            "go_on": self._go_on,
            "leave": self._leave,
            "join": self._join,
            "left": self._left,
            "joined": self._joined,
        }

    def expect(self, absences: Sequence[Absence]) -> None:
        """Workers that will leave, and those that will return."""
        for absence in absences:
            self.source.put(absence.leaves_s, ARRIVAL, "leave", (absence.worker,))
            if absence.returns_s is not None:
                self.source.put(absence.returns_s, ARRIVAL, "join", (absence.worker,))

    def run(self) -> None:
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Run, pausing after each thing that happens, of which a shard's update is at most one."""
        for worker, half in enumerate(self.pull_halves):
            self._do_worker(worker, half.begin())
        handlers, inbox = self._handlers, self._inbox
        while True:
            while inbox:
                kind, payload = inbox.popleft()
                handlers[kind](*payload)
                yield
            if not self._short:
                return
            event = self.source.pop()
            if event is None:
                if self.updates is None:
                    return
                raise ValueError(self._stuck())
            self.now_s = event.now_s
            handlers[event.kind](*event.payload)
            yield

    @property
    def done(self) -> bool:
        """Whether every shard has made its updates."""
        return self._short == 0

    def _finished(self, worker: int) -> None:
        row, self._row[worker] = self._row[worker], -1
        record, half = self.recorder, self.pull_halves[worker]
        record.finish(row, self.now_s)
        step, stamp, read = record.step[row], record.stamp[row], record.read[row]
        self._do_worker(worker, half.finished(self.now_s))
        for shard, version in enumerate(read):
            self._push(shard, Arrival(row, worker, step, stamp, version, self._stay[worker]))
        record.let_go(row)
        if self.messages is not None and not half.waits:
            self.source.put(self.now_s, DECISION, "go_on", (worker, self._stay[worker]))

    def _go_on(self, worker: int, stay: int) -> None:
        """A worker that does not wait has pushed, and what takes no time has come."""
        if self._here(worker, stay):
            self._do_worker(worker, self.pull_halves[worker].go_on(self.now_s))

    def _here(self, worker: int, stay: int) -> bool:
        """Whether this stay of the worker has not ended."""
        return stay == self._stay[worker] and worker in self._present

    def _push(self, shard: int, arrival: Arrival) -> None:
        kind, whole = "push", True
        if self.wire is not None:
            arrives, whole = self.wire.push(shard, arrival, self.now_s)
            if arrives is None:
                kind = "header"
            else:
                arrival = arrives
        if self.messages is None:
            self._inbox.append((kind, (shard, arrival)))
            return
        pair = (arrival.worker, shard)
        sequence = self._pushes[pair] = self._pushes.get(pair, -1) + 1
        at_s = self.now_s + self.messages.push_s(*pair, sequence, whole)
        self._at_shard(shard, at_s, ARRIVAL, kind, (shard, arrival))

    def _pull(self, worker: int, shard: int, version: int) -> None:
        # The stay that the shard knows of: one that was stopped may not have heard of a return yet.
        stay = self.push_halves[shard].stays.get(worker, 0)
        reply: tuple[Any, ...] = (worker, stay, shard, version)
        whole = True
        if self.wire is not None:
            current = stay == self._stay[worker]
            whole, deviation = self.wire.reply(worker, shard, version, self.now_s, current)
            reply = (*reply, whole, deviation)
        if self.messages is None:
            self._inbox.append(("pull", reply))
            return
        pair = (worker, shard)
        sequence = self._pulls[pair] = self._pulls.get(pair, -1) + 1
        at_s = self.now_s + self.messages.pull_s(*pair, sequence, whole)
        self.source.put(at_s, ARRIVAL, "pull", reply)

    def _at_shard(
        self, shard: int, at_s: float, priority: int, kind: str, payload: tuple[Any, ...]
    ) -> None:
        """What happens at a shard waits while the shard is stopped, for ever if it is for good."""
        if self.messages is not None:
            at_s = self.messages.up_s(shard, at_s)
        if at_s < math.inf:
            self.source.put(at_s, priority, kind, payload)
            return
        self._unheard.add(shard)
        if self._in_vain():
            raise ValueError(self._stuck())

    def _in_vain(self) -> bool:
        """Whether no shard goes on any more that has to, however long workers do."""
        return self.updates is not None and not any(
            half.version < self.updates and self._up_s(shard) < math.inf
            for shard, half in enumerate(self.push_halves)
        )

    def _up_s(self, shard: int) -> float:
        return self.now_s if self.messages is None else self.messages.up_s(shard, self.now_s)

    def _arrived(self, shard: int, arrival: Arrival) -> None:
        half = self.push_halves[shard]
        if self.updates is not None and half.version >= self.updates:
            self.recorder.let_go(arrival.row)
            self._do_shard(shard, half.on_header(arrival, self.now_s))
        else:
            self._do_shard(shard, half.on_push(arrival, self.now_s))

    def _header(self, shard: int, arrival: Arrival) -> None:
        """A push whose gradient stayed behind, to come averaged with a later one."""
        self._do_shard(shard, self.push_halves[shard].on_header(arrival, self.now_s))

    def _pulled(
        self,
        worker: int,
        stay: int,
        shard: int,
        version: int,
        whole: bool = True,
        deviation: float = 1.0,
    ) -> None:
        if not self._here(worker, stay):
            if self.wire is not None and whole:
                self.wire.receive(worker, shard, version, kept=False)
            return
        half = self.pull_halves[worker]
        # The policy goes by the header; the view has the version only if the tensor came with it.
        if version == self.updates:
            half.ended(shard)
        commands = half.pulled(shard, version, self.now_s)
        if self.wire is not None:
            self.wire.hear(worker, shard, deviation)
            if whole:
                self.wire.receive(worker, shard, version, kept=half.have[shard] == version)
        self._do_worker(worker, commands)

    def _requested(self, shard: int, worker: int, stay: int, at_least: int) -> None:
        if not self._here(worker, stay):
            return
        self._do_shard(shard, self.push_halves[shard].on_request(worker, at_least, self.now_s))

    def _shard_timer(self, shard: int, token: int) -> None:
        self._do_shard(shard, self.push_halves[shard].on_timer(token, self.now_s))

    def _worker_timer(self, worker: int, stay: int, token: int) -> None:
        if self._here(worker, stay):
            self._do_worker(worker, self.pull_halves[worker].timer(token, self.now_s))

    def _do_shard(self, shard: int, commands: Sequence[ShardCommand], returns: int = 0) -> None:
        if not commands and not returns:
            return
        record = self.recorder
        before, decided, released = len(record.group_shard), returns, 0
        for command in commands:
            if isinstance(command, Apply):
                self._version[shard] += 1
                decided += len(command.rows)
                record.apply(shard, command.rows, command.scale, self.now_s)
                if self._version[shard] == self.updates:
                    self._short -= 1
            elif isinstance(command, Release):
                released += 1
                self._pull(command.worker, shard, self._version[shard])
            elif isinstance(command, Drop):
                decided += 1
                record.drop(shard, command.row, command.reason, self.now_s)
            else:
                at_s = self.now_s + command.seconds
                self._at_shard(shard, at_s, DECISION, "shard_timer", (shard, command.token))
        if self.wire is None:  # which tells of every reply
            record.reply(shard, released - decided, before)

    def _do_worker(self, worker: int, commands: Sequence[WorkerCommand]) -> None:
        for command in commands:
            if isinstance(command, Start):
                self._start(worker, command.stamp)
            elif isinstance(command, Request):
                self._request(command.shard, worker, command.at_least)
            else:
                at_s = self.now_s + command.seconds
                timer = (worker, self._stay[worker], command.token)
                self.source.put(at_s, DECISION, "worker_timer", timer)

    def _request(self, shard: int, worker: int, at_least: int) -> None:
        """A request is a header and takes no time, unless the shard is stopped."""
        request = (shard, worker, self._stay[worker], at_least)
        if self.messages is None:
            self._inbox.append(("request", request))
        else:
            self._at_shard(shard, self.now_s, ARRIVAL, "request", request)

    def _leave(self, worker: int) -> None:
        """Its unfinished gradient is lost; pushes already on their way still arrive."""
        self._present.remove(worker)
        self.source.abandon(worker)
        row, self._row[worker] = self._row[worker], -1
        if row >= 0:  # nobody will finish it
            self.recorder.let_go(row)
        self.recorder.member(worker, False, self.now_s)
        if self.wire is not None:
            self.wire.leave(worker, self.now_s)
        for shard in range(self.recorder.shards):
            self._tell(shard, "left", (shard, worker))

    def _join(self, worker: int) -> None:
        self._present.add(worker)
        self._stay[worker] += 1
        self.recorder.member(worker, True, self.now_s)
        self.pull_halves[worker].rejoined()
        for shard in range(self.recorder.shards):
            if self._may_stop:  # a return counts one pull, which is sent when the shard hears of it
                self._do_shard(shard, (), returns=1)
            self._tell(shard, "joined", (shard, worker, self._stay[worker]))

    def _tell(self, shard: int, kind: str, payload: tuple[Any, ...]) -> None:
        """Who left or came takes no time to hear of, unless the shard is stopped. Where it may be,
        all goes through the queue, so that what waited is heard first."""
        if self._may_stop:
            self._at_shard(shard, self.now_s, ARRIVAL, kind, payload)
        else:
            self._inbox.append((kind, payload))

    @property
    def _may_stop(self) -> bool:
        """Whether shards may be stopped."""
        return self.messages is not None and bool(self.messages.network.outages)

    def _left(self, shard: int, worker: int) -> None:
        self._do_shard(shard, self.push_halves[shard].on_leave(worker, self.now_s))

    def _joined(self, shard: int, worker: int, stay: int) -> None:
        if self._here(worker, stay):  # it may have gone again before the shard heard of it
            commands = self.push_halves[shard].on_join(worker, self.now_s, stay)
            self._do_shard(shard, commands, returns=0 if self._may_stop else 1)

    def _start(self, worker: int, stamp: int) -> None:
        step = self._step[worker]
        read = self.pull_halves[worker].have if self.wire is None else self.wire.view[worker]
        self._row[worker] = self.recorder.start(worker, step, stamp, read, self.now_s)
        self._step[worker] = step + 1
        self.source.compute(worker, step, self.now_s)

    def _stuck(self) -> str:
        versions = [half.version for half in self.push_halves]
        why = "all workers wait for each other"
        if not self._present:
            why = "all workers are gone"
        elif self._unheard:
            why = f"shards {sorted(self._unheard)} have stopped for good"
        return (
            f"{why}: no shard can go on after time {self.now_s:g}, "
            f"and the shards are at versions {versions} of {self.updates}"
        )
