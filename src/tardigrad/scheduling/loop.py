"""The event loop: feeds shards and workers from a source of events and records what they decide.

It contains no protocol: that is in `protocol`, whose objects all drivers feed. Messages that take
no time are delivered at once, first come first served, before the next event is taken. Those that
take time keep their order between a worker and a shard (`Channels`).
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tardigrad.clusters import Messages
from tardigrad.policies import Arrival, Policy
from tardigrad.protocol.shard import ShardControl, ShardOutputs
from tardigrad.protocol.worker import WorkerControl, WorkerOutputs
from tardigrad.scheduling.channels import Channels
from tardigrad.scheduling.events import (
    ARRIVAL,
    ARRIVED,
    DECISION,
    FINISHED,
    GO_ON,
    HEADER,
    INTERRUPT,
    INTERRUPTED,
    JOINED,
    JOINS,
    LEAVES,
    LEFT,
    PULLED,
    PULLED_OVER_LINK,
    REQUESTED,
    SHARD_TIMER,
    WORKER_TIMER,
    Happening,
    Reply,
)
from tardigrad.scheduling.recorder import Recorder
from tardigrad.scheduling.sources import EventSource, everyone
from tardigrad.scheduling.stuck import stuck
from tardigrad.scheduling.wire import Wire

NOTHING = -1


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
        workers, shards = everyone(recorder.workers), recorder.shards
        self.source = source
        self.recorder = recorder
        self.updates = updates
        self.messages = messages
        """How long messages take; None: no time."""
        self.wire = wire
        """What a link lets through; None: everything."""
        self._at_once = messages is None and wire is None
        """Whether every message comes whole and takes no time."""
        self._directly = False
        """Whether a push may be heard as it is sent, where nothing else is to be heard before."""
        self._pauses = True
        """Whether somebody wants to look after each thing that happens."""
        self.now_s = 0.0
        at_shard = ShardOutputs(
            applied=recorder.apply,
            dropped=recorder.drop,
            released=self._release,
            timer=self._set_shard_timer,
            ended=self._ended,
            interrupted=self._interrupt,
        )
        self.shards = [
            ShardControl(policy, shard, workers, updates, at_shard) for shard in range(shards)
        ]
        at_worker = WorkerOutputs(
            start=self._start, request=self._request, timer=self._set_worker_timer
        )
        self._stays = [control.half.stays for control in self.shards]
        self.workers = [
            WorkerControl(policy, worker, shards, updates, at_worker) for worker in workers
        ]
        self._row = [NOTHING] * recorder.workers
        """Of each worker's gradient, the last that it began in this stay."""
        self._to_stop: dict[int, tuple[int, int, int]] = {}
        """Workers told to stop before they began: the step, by which shard, its version by then."""
        if messages is not None:
            self._to_shards = Channels(messages.push_s)
            self._to_workers = Channels(messages.pull_s)
        self._every_shard = tuple(range(shards))
        self._short = shards
        self._unheard: set[int] = set()  # shards that something reached after they stopped for good
        self._inbox: deque[Happening] = deque()

    def run(self) -> None:
        """To the end, and let go of shards and workers, which hold on to this loop as it does to
        them: else those of a large cluster stay in memory until somebody collects cycles."""
        self._pauses, self._directly = False, self._at_once
        for _ in self.steps():
            pass
        self.shards.clear()
        self.workers.clear()

    def steps(self) -> Iterator[None]:
        """Run, pausing after each thing that happens, of which a shard's update is at most one."""
        for control in self.workers:
            control.begin(self.now_s)
        inbox, pop, carry_out = self._inbox, self.source.pop, self._happenings()
        pause = self._pauses
        while True:
            if inbox:
                event = inbox.popleft()
            elif not self._short:
                return
            else:
                queued = pop()
                if queued is None:
                    if self.updates is None:
                        return
                    raise ValueError(self._stuck())
                self.now_s, _, event = queued
            happens, worker, stay, shard, what = event
            carry_out[happens](worker, stay, shard, what)
            if pause:
                yield

    @property
    def done(self) -> bool:
        """Whether every shard has made its updates."""
        return self._short == 0

    def _ended(self, _: int) -> None:
        self._short -= 1

    def _happenings(self) -> list[Callable[[int, int, int, Any], None]]:
        """What to do, by what happens."""
        by_kind: dict[int, Callable[[int, int, int, Any], None]] = {
            FINISHED: self._finished,
            ARRIVED: self._arrived,
            HEADER: self._header,
            PULLED: self._pulled,
            PULLED_OVER_LINK: self._pulled_over_link,
            REQUESTED: self._requested,
            SHARD_TIMER: self._shard_timer,
            WORKER_TIMER: self._worker_timer,
            GO_ON: self._go_on,
            LEAVES: self._leave,
            JOINS: self._join,
            LEFT: self._left,
            JOINED: self._joined,
            INTERRUPT: self._stop,
            INTERRUPTED: self._interrupted,
        }
        return [by_kind[kind] for kind in range(len(by_kind))]

    def _finished(self, worker: int, _: int, __: int, ___: None) -> None:
        control, record = self.workers[worker], self.recorder
        row, now_s = self._row[worker], self.now_s
        record.end_s[row] = now_s
        step, stamp, stay = control.step - 1, record.stamp[row], control.stay
        commands = control.half.finished(now_s)
        if commands:
            control.carry_out(commands, now_s)
        read, directly = record.read[row], self._directly and not self._inbox
        for shard in self._every_shard:
            arrival = Arrival(row, worker, step, stamp, read[shard], stay)
            if directly:  # it would be next in the inbox
                self._arrived(worker, stay, shard, arrival)
            else:
                self._push(shard, arrival)
        record.let_go(row)
        if self.messages is not None and not control.half.waits:
            self.source.put(now_s, DECISION, (GO_ON, worker, stay, 0, None))

    def _interrupt(self, shard: int, worker: int, step: int, now_s: float) -> None:
        """A header to a worker, behind what was released to it."""
        stay = self._stays[shard].get(worker, 0)
        event = (INTERRUPT, worker, stay, shard, step)
        if self.messages is None:
            self._inbox.append(event)
        else:
            at_s = self._to_workers.send(worker, shard, stay, now_s, whole=False)
            self.source.put(at_s, ARRIVAL, event)

    def _stop(self, worker: int, stay: int, shard: int, step: int) -> None:
        """Close the row and push its header; a step that has ended stays as it is."""
        control, row, record = self.workers[worker], self._row[worker], self.recorder
        if not control.here(stay):
            return
        if step == control.step:  # it waits for other shards
            self._to_stop[worker] = (step, shard, control.have[shard])
        elif row != NOTHING and step == record.step[row] and math.isnan(record.end_s[row]):
            self.source.abandon(worker)
            record.end_s[row] = self.now_s
            control.finished(self.now_s)
            for at, version in enumerate(record.read[row]):
                arrival = Arrival(row, worker, step, record.stamp[row], version, stay)
                self._push(at, arrival, INTERRUPTED)
            record.let_go(row)

    def _interrupted(self, worker: int, stay: int, shard: int, arrival: Arrival) -> None:
        self._decide(shard, self.shards[shard].interrupted, arrival)

    def _go_on(self, worker: int, stay: int, _: int, __: None) -> None:
        """A worker that does not wait has pushed, and what takes no time has come."""
        control = self.workers[worker]
        if control.here(stay):
            control.go_on(self.now_s)

    def _push(self, shard: int, arrival: Arrival, happens: int = ARRIVED) -> None:
        whole, worker, stay = happens == ARRIVED, arrival.worker, arrival.stay
        if self.wire is not None:
            arrives, whole = self.wire.push(shard, arrival, self.now_s)
            if arrives is None:
                happens = HEADER
            else:
                arrival = arrives
        event = (happens, worker, stay, shard, arrival)
        if self.messages is None:
            self._inbox.append(event)
            return
        at_s = self._to_shards.send(worker, shard, stay, self.now_s, whole)
        self._at_shard(shard, at_s, ARRIVAL, event)

    def _release(self, shard: int, worker: int, version: int, now_s: float) -> None:
        # The stay that the shard knows of: one that was stopped may not have heard of a return yet.
        stays = self._stays[shard]
        stay = stays.get(worker, 0) if stays else 0
        whole = True
        event: Happening = (PULLED, worker, stay, shard, version)
        if self._at_once:
            self._inbox.append(event)
            return
        if self.wire is not None:
            current = stay == self.workers[worker].stay
            whole, deviation = self.wire.reply(worker, shard, version, now_s, current)
            reply = Reply(version, whole, deviation)
            event = (PULLED_OVER_LINK, worker, stay, shard, reply)
        if self.messages is None:
            self._inbox.append(event)
            return
        at_s = self._to_workers.send(worker, shard, stay, now_s, whole)
        self.source.put(at_s, ARRIVAL, event)

    def _at_shard(self, shard: int, at_s: float, priority: int, event: Happening) -> None:
        """What happens at a shard waits while the shard is stopped, for ever if it is for good."""
        if self.messages is not None and self.messages.network.outages:
            at_s = self.messages.up_s(shard, at_s)
        if at_s < math.inf:
            self.source.put(at_s, priority, event)
            return
        self._unheard.add(shard)
        if self._in_vain():
            raise ValueError(self._stuck())

    def _in_vain(self) -> bool:
        """Whether no shard goes on any more that has to, however long workers do."""
        messages = self.messages
        assert messages is not None  # without them, none is ever stopped
        return self.updates is not None and not any(
            not shard.done and messages.up_s(shard.shard, self.now_s) < math.inf
            for shard in self.shards
        )

    def _arrived(self, worker: int, stay: int, shard: int, arrival: Arrival) -> None:
        control = self.shards[shard]
        before = control.version
        if before == self.updates:
            self.recorder.let_go(arrival.row)
        extra = control.push(arrival, self.now_s)
        if extra:
            applied = control.version - before
            self._replied(shard, extra, len(self.recorder.group_shard) - applied)

    def _header(self, worker: int, stay: int, shard: int, arrival: Arrival) -> None:
        """A push whose gradient stayed behind, to come averaged with a later one."""
        self._decide(shard, self.shards[shard].header, arrival)

    def _decide(self, shard: int, event: Callable[..., int], *about: Any) -> None:
        before = len(self.recorder.group_shard)
        self._replied(shard, event(*about, self.now_s), before)

    def _replied(self, shard: int, extra: int, after: int) -> None:
        if extra and self.wire is None:  # which tells of every reply
            self.recorder.reply(shard, extra, after)

    def _pulled(self, worker: int, stay: int, shard: int, version: int) -> None:
        control = self.workers[worker]
        if stay == control.stay and control.present:
            control.pulled(shard, version, self.now_s)

    def _pulled_over_link(self, worker: int, stay: int, shard: int, reply: Reply) -> None:
        assert self.wire is not None
        self.wire.pulled(self.workers[worker], stay, shard, reply, self.now_s)

    def _requested(self, worker: int, stay: int, shard: int, at_least: int) -> None:
        if self.workers[worker].here(stay):
            self._decide(shard, self.shards[shard].request, worker, at_least)

    def _shard_timer(self, _: int, __: int, shard: int, token: int) -> None:
        self._decide(shard, self.shards[shard].timer, token)

    def _set_shard_timer(self, shard: int, seconds: float, token: int, now_s: float) -> None:
        self._at_shard(shard, now_s + seconds, DECISION, (SHARD_TIMER, 0, 0, shard, token))

    def _worker_timer(self, worker: int, stay: int, _: int, token: int) -> None:
        control = self.workers[worker]
        if control.here(stay):
            control.timer(token, self.now_s)

    def _set_worker_timer(self, worker: int, seconds: float, token: int, now_s: float) -> None:
        stay = self.workers[worker].stay
        self.source.put(now_s + seconds, DECISION, (WORKER_TIMER, worker, stay, 0, token))

    def _request(self, worker: int, shard: int, at_least: int, now_s: float) -> None:
        """A request is a header and takes no time, unless pushes are before it on the way or the
        shard is stopped."""
        stay = self.workers[worker].stay
        event = (REQUESTED, worker, stay, shard, at_least)
        if self.messages is None:
            self._inbox.append(event)
        else:
            at_s = self._to_shards.behind(worker, shard, stay, now_s)
            self._at_shard(shard, at_s, ARRIVAL, event)

    def _leave(self, worker: int, _: int, __: int, ___: None) -> None:
        """Its unfinished gradient is lost; pushes already on their way still arrive."""
        self.workers[worker].leave()
        self.source.abandon(worker)
        row, self._row[worker] = self._row[worker], NOTHING
        if row != NOTHING and math.isnan(self.recorder.end_s[row]):  # nobody will finish it
            self.recorder.let_go(row)
        self.recorder.member(worker, False, self.now_s)
        if self.wire is not None:
            self.wire.leave(worker, self.now_s)
        for shard in range(self.recorder.shards):
            self._tell(shard, (LEFT, worker, 0, shard, None))

    def _join(self, worker: int, _: int, __: int, ___: None) -> None:
        control = self.workers[worker]
        control.join()
        self.recorder.member(worker, True, self.now_s)
        for shard in range(self.recorder.shards):
            if self._may_stop:  # a return counts one pull, which is sent when the shard hears of it
                self._replied(shard, -1, len(self.recorder.group_shard))
            self._tell(shard, (JOINED, worker, control.stay, shard, control.step))

    def _tell(self, shard: int, event: Happening) -> None:
        """Who left or came takes no time to hear of, unless the shard is stopped. Where it may be,
        all goes through the queue, so that what waited is heard first."""
        if self._may_stop:
            self._at_shard(shard, self.now_s, ARRIVAL, event)
        else:
            self._inbox.append(event)

    @property
    def _may_stop(self) -> bool:
        """Whether shards may be stopped."""
        return self.messages is not None and bool(self.messages.network.outages)

    def _left(self, worker: int, stay: int, shard: int, _: None) -> None:
        self._decide(shard, self.shards[shard].leave, worker)

    def _joined(self, worker: int, stay: int, shard: int, step: int) -> None:
        if self.workers[worker].here(stay):  # it may have gone again before the shard heard of it
            before = len(self.recorder.group_shard)
            extra = self.shards[shard].join(worker, self.now_s, stay, step)
            self._replied(shard, extra if self._may_stop else extra - 1, before)

    def _start(self, worker: int, stamp: int, now_s: float) -> None:
        control = self.workers[worker]
        step = control.step
        control.step = step + 1
        read = control.half.have if self.wire is None else self.wire.view[worker]
        self._row[worker] = self.recorder.start(worker, step, stamp, read, now_s)
        self.source.compute(worker, step, now_s)
        if self._to_stop:
            told, shard, had = self._to_stop.pop(worker, (NOTHING, 0, 0))
            if told == step and control.have[shard] == had:  # not released again since
                self._inbox.append((INTERRUPT, worker, control.stay, shard, step))

    def _stuck(self) -> str:
        return stuck(self.shards, self.workers, self._unheard, self.now_s)
