"""The event loop: feeds shards and workers from a source of events and records what they decide.

It contains no protocol: that is in `protocol`, whose objects all drivers feed. Messages that take
no time are delivered at once, first come first served, before the next event is taken.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tardigrad.clusters import Absence, Messages
from tardigrad.policies import Arrival, Policy
from tardigrad.protocol.shard import ShardControl, ShardOutputs
from tardigrad.protocol.worker import WorkerControl, WorkerOutputs
from tardigrad.scheduling.recorder import Recorder
from tardigrad.scheduling.sources import ARRIVAL, DECISION, EventSource
from tardigrad.scheduling.wire import Wire


class ControlLoop:
    """One run of control: workers compute, push, wait and pull until every shard has `updates`.

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
        messages: Messages | None = None,
        wire: Wire | None = None,
    ) -> None:
        everyone, shards = range(recorder.workers), recorder.shards
        self.source = source
        self.recorder = recorder
        self.updates = updates
        self.messages = messages
        """How long messages take; None: no time."""
        self.wire = wire
        """What a link lets through; None: everything."""
        self.now_s = 0.0
        at_shard = ShardOutputs(
            applied=recorder.apply,
            dropped=recorder.drop,
            released=self._release,
            timer=self._set_shard_timer,
            ended=self._ended,
        )
        self.shards = [
            ShardControl(policy, shard, everyone, updates, at_shard) for shard in range(shards)
        ]
        at_worker = WorkerOutputs(
            start=self._start, request=self._request, timer=self._set_worker_timer
        )
        self.workers = [
            WorkerControl(policy, worker, shards, updates, at_worker) for worker in everyone
        ]
        self._row = [-1] * recorder.workers
        self._pushes: dict[tuple[int, int], int] = {}
        self._pulls: dict[tuple[int, int], int] = {}
        self._short = shards
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
        for worker in self.workers:
            worker.begin(self.now_s)
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

    def _ended(self, shard: int) -> None:
        self._short -= 1

    def _finished(self, worker: int) -> None:
        row, self._row[worker] = self._row[worker], -1
        record, control = self.recorder, self.workers[worker]
        record.finish(row, self.now_s)
        step, stamp, read = record.step[row], record.stamp[row], record.read[row]
        control.finished(self.now_s)
        for shard, version in enumerate(read):
            self._push(shard, Arrival(row, worker, step, stamp, version, control.stay))
        record.let_go(row)
        if self.messages is not None and not control.half.waits:
            self.source.put(self.now_s, DECISION, "go_on", (worker, control.stay))

    def _go_on(self, worker: int, stay: int) -> None:
        """A worker that does not wait has pushed, and what takes no time has come."""
        control = self.workers[worker]
        if control.here(stay):
            control.go_on(self.now_s)

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

    def _release(self, shard: int, worker: int, version: int, now_s: float) -> None:
        # The stay that the shard knows of: one that was stopped may not have heard of a return yet.
        stay = self.shards[shard].half.stays.get(worker, 0)
        reply: tuple[Any, ...] = (worker, stay, shard, version)
        whole = True
        if self.wire is not None:
            current = stay == self.workers[worker].stay
            whole, deviation = self.wire.reply(worker, shard, version, now_s, current)
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
            not shard.done and self._up_s(shard.shard) < math.inf for shard in self.shards
        )

    def _up_s(self, shard: int) -> float:
        return self.now_s if self.messages is None else self.messages.up_s(shard, self.now_s)

    def _arrived(self, shard: int, arrival: Arrival) -> None:
        control, before = self.shards[shard], len(self.recorder.group_shard)
        if control.done:
            self.recorder.let_go(arrival.row)
        self._replied(shard, control.push(arrival, self.now_s), before)

    def _header(self, shard: int, arrival: Arrival) -> None:
        """A push whose gradient stayed behind, to come averaged with a later one."""
        before = len(self.recorder.group_shard)
        self._replied(shard, self.shards[shard].header(arrival, self.now_s), before)

    def _replied(self, shard: int, extra: int, after: int) -> None:
        if extra and self.wire is None:  # which tells of every reply
            self.recorder.reply(shard, extra, after)

    def _pulled(
        self,
        worker: int,
        stay: int,
        shard: int,
        version: int,
        whole: bool = True,
        deviation: float = 1.0,
    ) -> None:
        control, wire = self.workers[worker], self.wire
        if not control.here(stay):
            if wire is not None and whole:
                wire.receive(worker, shard, version, kept=False)
        elif wire is None:
            control.pulled(shard, version, self.now_s)
        else:
            # The policy goes by the header; the view has the version only if the tensor came with
            # it, and has it before the worker starts.
            commands = control.hear(shard, version, self.now_s)
            wire.hear(worker, shard, deviation)
            if whole:
                wire.receive(worker, shard, version, kept=control.have[shard] == version)
            control.carry_out(commands, self.now_s)

    def _requested(self, shard: int, worker: int, stay: int, at_least: int) -> None:
        if self.workers[worker].here(stay):
            before = len(self.recorder.group_shard)
            extra = self.shards[shard].request(worker, at_least, self.now_s)
            self._replied(shard, extra, before)

    def _shard_timer(self, shard: int, token: int) -> None:
        before = len(self.recorder.group_shard)
        self._replied(shard, self.shards[shard].timer(token, self.now_s), before)

    def _set_shard_timer(self, shard: int, seconds: float, token: int, now_s: float) -> None:
        self._at_shard(shard, now_s + seconds, DECISION, "shard_timer", (shard, token))

    def _worker_timer(self, worker: int, stay: int, token: int) -> None:
        control = self.workers[worker]
        if control.here(stay):
            control.timer(token, self.now_s)

    def _set_worker_timer(self, worker: int, seconds: float, token: int, now_s: float) -> None:
        timer = (worker, self.workers[worker].stay, token)
        self.source.put(now_s + seconds, DECISION, "worker_timer", timer)

    def _request(self, worker: int, shard: int, at_least: int, now_s: float) -> None:
        """A request is a header and takes no time, unless the shard is stopped."""
        request = (shard, worker, self.workers[worker].stay, at_least)
        if self.messages is None:
            self._inbox.append(("request", request))
        else:
            self._at_shard(shard, now_s, ARRIVAL, "request", request)

    def _leave(self, worker: int) -> None:
        """Its unfinished gradient is lost; pushes already on their way still arrive."""
        control = self.workers[worker]
        if not control.present:
            return
        control.leave()
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
        control = self.workers[worker]
        if control.present:
            return
        control.join()
        self.recorder.member(worker, True, self.now_s)
        for shard in range(self.recorder.shards):
            if self._may_stop:  # a return counts one pull, which is sent when the shard hears of it
                self._replied(shard, -1, len(self.recorder.group_shard))
            self._tell(shard, "joined", (shard, worker, control.stay))

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
        before = len(self.recorder.group_shard)
        self._replied(shard, self.shards[shard].leave(worker, self.now_s), before)

    def _joined(self, shard: int, worker: int, stay: int) -> None:
        if self.workers[worker].here(stay):  # it may have gone again before the shard heard of it
            before = len(self.recorder.group_shard)
            extra = self.shards[shard].join(worker, self.now_s, stay)
            self._replied(shard, extra if self._may_stop else extra - 1, before)

    def _start(self, worker: int, stamp: int, now_s: float) -> None:
        control = self.workers[worker]
        read = control.have if self.wire is None else self.wire.view[worker]
        self._row[worker] = self.recorder.start(worker, control.step, stamp, read, now_s)
        self.source.compute(worker, control.step, now_s)
        control.step += 1

    def _stuck(self) -> str:
        versions = [shard.half.version for shard in self.shards]
        why = "all workers wait for each other"
        if not any(worker.present for worker in self.workers):
            why = "all workers are gone"
        elif self._unheard:
            why = f"shards {sorted(self._unheard)} have stopped for good"
        return (
            f"{why}: no shard can go on after time {self.now_s:g}, "
            f"and the shards are at versions {versions} of {self.updates}"
        )
