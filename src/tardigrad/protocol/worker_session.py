"""A worker among processes that die and a network that loses, repeats and delays.

Whoever drives it hands in what shards say and what was computed, and does what `outputs` say. The
numbers themselves stay with the driver: a release comes with a payload that is only passed on.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tardigrad.policies import Policy
from tardigrad.protocol.begun import ArrivingVersion, BegunStep
from tardigrad.protocol.channels import ShardBeginning, ShardChannel
from tardigrad.protocol.gates import WorkerGate
from tardigrad.protocol.messages import (
    NO_ROW,
    NO_STEP,
    Confirmation,
    FromShard,
    FromWorker,
    Hello,
    PushHeader,
    RowGiven,
    RowRequest,
    VersionRequest,
    WorkerBody,
)
from tardigrad.protocol.worker import WorkerControl, WorkerOutputs
from tardigrad.protocol.worker_outputs import (
    Compute,
    Discard,
    Forget,
    Send,
    StopComputing,
    WorkerOutput,
    WorkerTimer,
)

CONFIRM = 2
"""Releases that a worker takes before it confirms them to a shard with a message of their own. One
rides on the push that follows it; shards let `WINDOW` of them go."""


class WorkerStart(NamedTuple):
    """Where a worker's process begins.

    A new worker begins at step 0: with a row, at version 0 of every shard; without, when every
    shard has released it. One that takes a dead one's place goes on at `step`.
    """

    worker: int
    life: int
    step: int
    row: int
    heard: tuple[int, ...]
    """The last release of each shard that is not to be taken again."""
    epochs: tuple[int, ...]
    keeps: bool = False
    """Whether it goes on with what the process before it kept for itself, which comes with this."""


class WorkerStatus(NamedTuple):
    """`quiet`: it computes nothing, and every shard has all it said."""

    quiet: bool
    step: int
    """Of its next gradient."""


class WorkerSession:
    """One life of a worker."""

    def __init__(
        self,
        policy: Policy,
        shards: int,
        updates: int,
        start: WorkerStart,
        gate: WorkerGate | None = None,
    ) -> None:
        """gate: what a link lets through; None: everything."""
        self.worker, self.life = start.worker, start.life
        self.updates = updates
        self.gate = gate
        self.control = WorkerControl(
            policy,
            start.worker,
            shards,
            updates,
            WorkerOutputs(self._start, self._request, self._timer_set),
        )
        self.control.step = start.step
        self._start_row = start.row
        self._begins_anew = not start.keeps
        self._channels = [
            ShardChannel(epoch, heard, heard, have_epoch=epoch)
            for epoch, heard in zip(start.epochs, start.heard, strict=True)
        ]
        known = start.step if start.row != NO_ROW else -1
        self._row = RowGiven(start.worker, known, start.row)
        self._asked_row = -1
        """The step whose row shard 0 was asked for."""
        self._begun: BegunStep | None = None
        """A gradient to be computed, or that is being computed."""
        self._computing = False
        self._interrupted = NO_STEP
        """The last step that a shard interrupted: while it was computed, or before it began."""
        self._unpushed: tuple[int, ...] | None = None
        """The view of a gradient that is there, and about to be pushed."""
        self._fresh: dict[int, Any] = {}
        self._arriving: ArrivingVersion | None = None
        self._held = False
        self._stopped = False
        self._out: list[WorkerOutput] = []

    # Events.

    def begin(self, now_s: float) -> list[WorkerOutput]:
        if self._start_row != NO_ROW:
            self.control.begin(now_s)
        elif self.life:
            self.control.replaced(now_s)
        else:
            self.control.half.rejoined()
        self._go(now_s)
        return self._outputs()

    def hear(self, message: FromShard, payloads: Sequence[Any], now_s: float) -> list[WorkerOutput]:
        """What a shard says; `payloads` are the numbers of its releases, None where a link holds
        them back."""
        channel = self._channels[message.shard]
        if message.life != self.life or message.epoch != channel.epoch:
            for payload in payloads:
                self._discard(payload)
            return self._outputs()
        self._acknowledged(message.shard, message.acked)
        if message.row != NO_ROW and message.step == self.control.step:
            self._row = RowGiven(self.worker, message.step, message.row, message.deal)
        deviations = message.deviations or (1.0,) * len(payloads)
        for said in zip(message.releases, payloads, deviations, strict=True):
            released, payload, _ = said
            if released.sequence <= channel.heard or released.sequence in channel.early:
                self._discard(payload)
            else:
                channel.early[released.sequence] = said
        while channel.early and self._take(message.shard, now_s):
            pass
        if message.stop != NO_STEP and message.sequence >= channel.heard:
            channel.stop = message.stop  # a release that came, or comes later, makes it void
            if self._computing and message.stop == self.control.step and not self.interrupted:
                self._interrupted = message.stop
                self._out.append(StopComputing())
        if channel.heard - channel.confirmed >= CONFIRM:
            self._send(message.shard, Confirmation())
        self._go(now_s)
        return self._outputs()

    def computed(self, loss: float, finite: bool, end_s: float, now_s: float) -> list[WorkerOutput]:
        """The gradient is there, or was given up, and is pushed. With that the step ends: where it
        was interrupted before, no numbers follow, even if they are there.

        One that is NaN or infinite is pushed as a header only and dropped by every shard; no policy
        hears of it, because the worker tries its next batch at the same view.
        """
        begun = self._begun
        assert begun is not None
        step, interrupted = self.control.step, self.interrupted
        finite = finite or interrupted
        header = PushHeader(
            begun.row,
            self.worker,
            step,
            begun.stamp,
            begun.read,
            begun.epochs,
            begun.start_s,
            end_s,
            math.nan if interrupted else loss,
            finite,
            fresh=self._begins_anew,
            interrupted=interrupted,
            deal=self._row.deal,
        )
        if finite and not interrupted:  # else what the worker keeps for itself is as it was
            self._begins_anew = False
        self.control.step = step + 1
        self._computing = False
        self._begun = None if finite else begun._replace(row=NO_ROW, start_s=now_s)
        if finite:
            self._unpushed = begun.read  # what the policy asks for here is sent before the push
            self.control.finished(now_s)
            self._unpushed = None
        for shard in range(len(self._channels)):
            gate = self.gate if finite else None
            self._send(shard, header if gate is None else gate.push(header, shard))
        if finite and not self.control.half.waits:
            self.control.go_on(now_s)
        self._go(now_s)
        return self._outputs()

    def timer(self, token: int, now_s: float) -> list[WorkerOutput]:
        self.control.timer(token, now_s)
        self._go(now_s)
        return self._outputs()

    def hold(self) -> None:
        """Start nothing until `go_on`."""
        self._held = True

    def go_on(self, now_s: float) -> list[WorkerOutput]:
        if self._held:
            self._held = False
            if self._begun is not None and not self._computing:
                self._begun = self._begun._replace(start_s=now_s)
        self._go(now_s)
        return self._outputs()

    def stop(self) -> None:
        """Start nothing more."""
        self._stopped = True

    def replaced_shard(self, shard: int, began: ShardBeginning) -> bool:
        """The shard is another process now. False: this worker has heard of things that did not
        happen, and cannot go on; another life has to."""
        channel = self._channels[shard]
        if began.epoch <= channel.epoch:
            return True
        if (
            began.life != self.life
            or channel.heard > began.sequence
            or channel.acked > began.number
            or channel.newest > began.version
        ):
            return False
        # All it has from this shard is what the new process has too.
        channel.epoch = channel.have_epoch = began.epoch
        if self._begun is not None:
            epochs = (*self._begun.epochs[:shard], began.epoch, *self._begun.epochs[shard + 1 :])
            self._begun = self._begun._replace(epochs=epochs)
        for _, payload, _ in channel.early.values():
            self._discard(payload)
        channel.early.clear()
        return True

    def again(self, shard: int) -> list[FromWorker | Hello]:
        """What to say to a shard that may have missed it, or whose answers may be lost."""
        channel = self._channels[shard]
        return [*channel.unacked, Hello(self.worker, self.life, channel.heard)]

    @property
    def begins_anew(self) -> bool:
        """Whether what the worker keeps for itself is as it begins."""
        return self._begins_anew

    @property
    def interrupted(self) -> bool:
        """Whether a shard has told it to stop computing the step that it is at."""
        return self._interrupted == self.control.step

    @property
    def status(self) -> WorkerStatus:
        unsaid = any(channel.unacked for channel in self._channels)
        return WorkerStatus(not self._computing and not unsaid, self.control.step)

    def awaits(self, shard: int) -> tuple[int, int] | None:
        """What is awaited of this shard, to be compared: the first message that it has not
        acknowledged, and the last release that was heard. None: nothing, because a gradient is
        being computed, or no other will be."""
        channel = self._channels[shard]
        if channel.unacked:
            return channel.unacked[0].number, channel.heard
        if self._computing or self._stopped:
            return None
        return channel.number + 1, channel.heard

    # What follows.

    def _outputs(self) -> list[WorkerOutput]:
        out, self._out = self._out, []
        return out

    def _discard(self, payload: Any) -> None:
        if payload is not None:
            self._out.append(Discard(payload))

    def _take(self, shard: int, now_s: float) -> bool:
        """The next release in turn, if it is there."""
        channel = self._channels[shard]
        entry = channel.early.pop(channel.heard + 1, None)
        if entry is None:
            return False
        released, payload, deviation = entry
        channel.heard, channel.stop = released.sequence, NO_STEP
        if self.gate is not None:
            self.gate.heard[shard] = deviation
        channel.newest = max(channel.newest, released.version)
        self._arriving = ArrivingVersion(shard, released, self.control.have[shard], payload)
        self.control.pulled(shard, released.version, now_s)
        self._settle()
        return True

    def _settle(self) -> None:
        """The version that has just come is in the view from now on, or is not wanted."""
        if self._arriving is None:
            return
        (shard, released, before, payload), self._arriving = self._arriving, None
        if released.carries and self.control.have[shard] == released.version >= before:
            channel = self._channels[shard]
            channel.have, channel.have_epoch = released.version, channel.epoch
            self._discard(self._fresh.pop(shard, None))
            self._fresh[shard] = payload
        else:
            self._discard(payload)

    def _start(self, worker: int, stamp: int, now_s: float) -> None:
        self._settle()
        if min(channel.newest for channel in self._channels) >= self.updates:
            return  # every shard is done: nobody would apply it
        read = tuple([channel.have for channel in self._channels])
        epochs = tuple([channel.have_epoch for channel in self._channels])
        self._begun = BegunStep(stamp, read, epochs, self._fresh, now_s)
        self._fresh = {}

    def _go(self, now_s: float) -> None:
        """Compute what is begun, as soon as it has a row."""
        begun, step = self._begun, self.control.step
        if begun is None or self._computing or self._held or self._stopped:
            return
        given = self._row
        if given.step != step:
            if self._asked_row != step:
                self._asked_row = step
                self._send(0, RowRequest(step))
            return
        self._computing = True
        if any(channel.stop == step for channel in self._channels):
            self._interrupted = step
        self._begun = begun._replace(row=given.row, fresh={})
        at = (begun.stamp, begun.read, begun.fresh, begun.start_s)
        self._out.append(Compute(given.row, step, *at, given.deal))

    def _request(self, worker: int, shard: int, at_least: int, now_s: float) -> None:
        self._settle()
        self._send(shard, VersionRequest(at_least))

    def _timer_set(self, worker: int, seconds: float, token: int, now_s: float) -> None:
        self._out.append(WorkerTimer(seconds, token))

    def _send(self, shard: int, body: WorkerBody) -> None:
        channel = self._channels[shard]
        have = channel.have
        read = self._unpushed or (self._begun.read if self._begun is not None else None)
        at = have if read is None else read[shard]
        channel.number += 1
        channel.confirmed = channel.heard
        message = FromWorker(self.worker, self.life, channel.number, channel.heard, at, have, body)
        channel.unacked.append(message)
        self._out.append(Send(shard, message))

    def _acknowledged(self, shard: int, acked: int) -> None:
        channel = self._channels[shard]
        if acked <= channel.acked:
            return
        channel.acked = acked
        done = [message for message in channel.unacked if message.number <= acked]
        channel.unacked = channel.unacked[len(done) :]
        for message in done:
            if isinstance(message.body, PushHeader):
                for row in (*message.body.merged, message.body.row):
                    if not self._needed(row):
                        self._out.append(Forget(row))

    def _needed(self, row: int) -> bool:
        """Whether some shard may still have to be sent this gradient."""
        if self.gate is not None and row in self.gate.unsent():
            return True
        return any(channel.unacked and channel.pushes(row) for channel in self._channels)
