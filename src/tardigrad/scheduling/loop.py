"""The event loop: feeds shards and workers from a source of events and records what they decide.

It contains no protocol: that is in `protocol`, whose objects all drivers feed. Messages that take
no time are delivered at once, first come first served, before the next event is taken. Those that
take time keep their order between a worker and a shard (`Channels`).
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tardigrad.clusters import Absence, Messages
from tardigrad.policies import Arrival, Policy
from tardigrad.protocol.shard import ShardControl, ShardOutputs
from tardigrad.protocol.worker import WorkerControl, WorkerOutputs
from tardigrad.scheduling.channels import Channels
from tardigrad.scheduling.recorder import Recorder
from tardigrad.scheduling.sources import ARRIVAL, DECISION, Arguments, EventSource
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
        self._computing: list[tuple[int, int, int, tuple[int, ...]] | None]
        """Per worker, its gradient: row, step, stamp, and versions read."""
        self._computing = [None] * recorder.workers
        if messages is not None:
            self._to_shards = Channels(messages.push_s)
            self._to_workers = Channels(messages.pull_s)
        self._short = shards
        self._unheard: set[int] = set()  # shards that something reached after they stopped for good
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def expect(self, absences: Sequence[Absence]) -> None:
        """Workers that will leave, and those that will return."""
        for absence in absences:
            self.source.put(absence.leaves_s, ARRIVAL, self._leave, absence.worker)
            if absence.returns_s is not None:
                self.source.put(absence.returns_s, ARRIVAL, self._join, absence.worker)

    def run(self) -> None:
        """To the end, and let go of shards and workers, which hold on to this loop as it does to
        them: else those of a large cluster stay in memory until somebody collects cycles."""
        for _ in self.steps():
            pass
        self.shards.clear()
        self.workers.clear()

    def steps(self) -> Iterator[None]:
        """Run, pausing after each thing that happens, of which a shard's update is at most one."""
        for worker in self.workers:
            worker.begin(self.now_s)
        inbox, pop = self._inbox, self.source.pop
        while True:
            while inbox:
                happens, arguments = inbox.popleft()
                happens(*arguments)
                yield
            if not self._short:
                return
            event = pop()
            if event is None:
                if self.updates is None:
                    return
                raise ValueError(self._stuck())
            self.now_s, _, _, queued, arguments = event
            (queued or self._finished)(*arguments)
            yield

    @property
    def done(self) -> bool:
        """Whether every shard has made its updates."""
        return self._short == 0

    def _ended(self, shard: int) -> None:
        self._short -= 1

    def _finished(self, worker: int) -> None:
        computed, self._computing[worker] = self._computing[worker], None
        assert computed is not None
        row, step, stamp, read = computed
        control, record, now_s = self.workers[worker], self.recorder, self.now_s
        record.finish(row, now_s)
        control.finished(now_s)
        stay = control.stay
        for shard, version in enumerate(read):
            self._push(shard, Arrival(row, worker, step, stamp, version, stay))
        record.let_go(row)
        if self.messages is not None and not control.half.waits:
            self.source.put(now_s, DECISION, self._go_on, worker, stay)

    def _go_on(self, worker: int, stay: int) -> None:
        """A worker that does not wait has pushed, and what takes no time has come."""
        control = self.workers[worker]
        if control.here(stay):
            control.go_on(self.now_s)

    def _push(self, shard: int, arrival: Arrival) -> None:
        happens, whole = self._arrived, True
        if self.wire is not None:
            arrives, whole = self.wire.push(shard, arrival, self.now_s)
            if arrives is None:
                happens = self._header
            else:
                arrival = arrives
        if self.messages is None:
            self._inbox.append((happens, (shard, arrival)))
            return
        at_s = self._to_shards.send(arrival.worker, shard, arrival.stay, self.now_s, whole)
        self._at_shard(shard, at_s, ARRIVAL, happens, shard, arrival)

    def _release(self, shard: int, worker: int, version: int, now_s: float) -> None:
        # The stay that the shard knows of: one that was stopped may not have heard of a return yet.
        stay = self.shards[shard].half.stays.get(worker, 0)
        whole, deviation = True, 1.0
        if self.wire is not None:
            current = stay == self.workers[worker].stay
            whole, deviation = self.wire.reply(worker, shard, version, now_s, current)
        if self.messages is None:
            reply = (worker, stay, shard, version, whole, deviation)
            self._inbox.append((self._pulled, reply))
            return
        at_s = self._to_workers.send(worker, shard, stay, now_s, whole)
        self.source.put(at_s, ARRIVAL, self._pulled, worker, stay, shard, version, whole, deviation)

    def _at_shard(
        self,
        shard: int,
        at_s: float,
        priority: int,
        happens: Callable[[*Arguments], None],
        *arguments: *Arguments,
    ) -> None:
        """What happens at a shard waits while the shard is stopped, for ever if it is for good."""
        if self.messages is not None:
            at_s = self.messages.up_s(shard, at_s)
        if at_s < math.inf:
            self.source.put(at_s, priority, happens, *arguments)
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
        extra = control.push(arrival, self.now_s)
        if extra:
            self._replied(shard, extra, before)

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
        whole: bool,
        deviation: float,
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
        self._at_shard(shard, now_s + seconds, DECISION, self._shard_timer, shard, token)

    def _worker_timer(self, worker: int, stay: int, token: int) -> None:
        control = self.workers[worker]
        if control.here(stay):
            control.timer(token, self.now_s)

    def _set_worker_timer(self, worker: int, seconds: float, token: int, now_s: float) -> None:
        stay = self.workers[worker].stay
        self.source.put(now_s + seconds, DECISION, self._worker_timer, worker, stay, token)

    def _request(self, worker: int, shard: int, at_least: int, now_s: float) -> None:
        """A request is a header and takes no time, unless pushes are before it on the way or the
        shard is stopped."""
        stay = self.workers[worker].stay
        if self.messages is None:
            self._inbox.append((self._requested, (shard, worker, stay, at_least)))
        else:
            at_s = self._to_shards.behind(worker, shard, stay, now_s)
            self._at_shard(shard, at_s, ARRIVAL, self._requested, shard, worker, stay, at_least)

    def _leave(self, worker: int) -> None:
        """Its unfinished gradient is lost; pushes already on their way still arrive."""
        self.workers[worker].leave()
        self.source.abandon(worker)
        computing, self._computing[worker] = self._computing[worker], None
        if computing is not None:  # nobody will finish it
            self.recorder.let_go(computing[0])
        self.recorder.member(worker, False, self.now_s)
        if self.wire is not None:
            self.wire.leave(worker, self.now_s)
        for shard in range(self.recorder.shards):
            self._tell(shard, self._left, shard, worker)

    def _join(self, worker: int) -> None:
        control = self.workers[worker]
        control.join()
        self.recorder.member(worker, True, self.now_s)
        for shard in range(self.recorder.shards):
            if self._may_stop:  # a return counts one pull, which is sent when the shard hears of it
                self._replied(shard, -1, len(self.recorder.group_shard))
            self._tell(shard, self._joined, shard, worker, control.stay)

    def _tell(
        self, shard: int, happens: Callable[[*Arguments], None], *arguments: *Arguments
    ) -> None:
        """Who left or came takes no time to hear of, unless the shard is stopped. Where it may be,
        all goes through the queue, so that what waited is heard first."""
        if self._may_stop:
            self._at_shard(shard, self.now_s, ARRIVAL, happens, *arguments)
        else:
            self._inbox.append((happens, arguments))

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
        step = control.step
        control.step = step + 1
        read = tuple(control.half.have if self.wire is None else self.wire.view[worker])
        row = self.recorder.start(worker, step, stamp, read, now_s)
        self._computing[worker] = (row, step, stamp, read)
        self.source.compute(worker, step, now_s)

    def _stuck(self) -> str:
        versions = [shard.version for shard in self.shards]
        why = "all workers wait for each other"
        if not any(worker.present for worker in self.workers):
            why = "all workers are gone"
        elif self._unheard:
            why = f"shards {sorted(self._unheard)} have stopped for good"
        return (
            f"{why}: no shard can go on after time {self.now_s:g}, "
            f"and the shards are at versions {versions} of {self.updates}"
        )
