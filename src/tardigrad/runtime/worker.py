"""A worker: computes gradients, pushes them, and starts again when its policy says it has enough.

Two threads: `run` computes; answers of shards come in on others and go to the pull half at once,
under a lock, so that the policy sees them when they come and not when the gradient is done.
"""

import math
import queue
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import ray
import torch

from tardigrad.core.allocation import keep_freed_memory
from tardigrad.core.trees import not_finite
from tardigrad.engine import Diverged
from tardigrad.policies import Request, SetTimer, Start
from tardigrad.policies.machine import WorkerCommand
from tardigrad.runtime.arena import Payload
from tardigrad.runtime.channel import Channel, open_channel
from tardigrad.runtime.faults import Fuse
from tardigrad.runtime.messages import NO_ROW, Call, Packed, PushHeader, Released, Ticket
from tardigrad.runtime.setup import Clock, Life, Place, Setup
from tardigrad.runtime.standing import Where
from tardigrad.runtime.timers import Timers
from tardigrad.runtime.transport import Laid, Taken, Tray, count_pieces, received
from tardigrad.tasks import Turn

PATIENCE = 10
"""Gradients in a row that may be NaN or infinite before the run is called diverged."""


class _Begin(NamedTuple):
    """A gradient to compute: everything that was fixed when the policy said so."""

    stamp: int
    read: tuple[int, ...]
    fresh: dict[int, Payload]
    """Versions that came since the last start, by shard."""
    start_s: float


class _Asked(NamedTuple):
    """A call as it can be made again."""

    kind: str
    what: tuple[Any, ...]
    laid: Laid | None = None
    extra: tuple[Any, ...] = ()


class _Peer:
    """What a worker knows of one shard."""

    def __init__(self, channel: Channel, incarnation: int) -> None:
        self.channel = channel
        self.incarnation = incarnation
        self.heard = -1
        self.early: dict[int, Packed] = {}
        """Releases that came before their turn, by sequence."""
        self.unanswered: dict[int, _Asked] = {}
        """Calls, in order, of which it is not known that the shard has logged them."""
        self.asked = 0


class Worker:
    """One worker, made into an actor by the driver; `prepare` gives it a run, and later another."""

    _tray: Tray
    _timers: Timers

    def __init__(self) -> None:
        keep_freed_memory()

    def prepare(self, setup: Setup, worker: int, incarnation: int) -> Place:
        """Become worker number `worker` of a run; the answer is where this process is."""
        if hasattr(self, "_tray"):  # of the run before
            self._tray.close()
            self._timers.close()
            for peer in self._peers:
                peer.channel.close()
        self.setup = setup
        self.worker = worker
        self._life = Life(setup.run, incarnation)
        shards = setup.sharding.shards
        self._half = setup.policy.pull_half(shards)
        self._clock = Clock(setup.began_s)
        self._fuse = Fuse(setup.faults, "worker", worker, incarnation)
        self._view = setup.task.start()
        self._tray = Tray(len(self._view), self._view.dtype, shards, setup.shared_memory)
        self._taken = Taken(worker)
        self._lock = threading.RLock()
        self._peers: list[_Peer] = []
        self._begins: queue.SimpleQueue[_Begin | BaseException | None] = queue.SimpleQueue()
        self._fresh: dict[int, Payload] = {}
        self._versions = [0] * shards
        self._tickets: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._row = NO_ROW
        self._next_row = NO_ROW
        self._step = 0
        self._computing = False
        self._timers = Timers(self._timer)
        self._ringing = 0
        self._steps = 0
        self._busy_s = 0.0
        self._late_steps = 0
        self._behind_s = 0.0
        self._refused = 0
        self._running = False
        return Place.here()

    def connect(self, shards: Sequence[tuple[Any, int, Place]]) -> None:
        """The shards' handles, incarnations and places, before anything else."""
        for shard, (handle, incarnation, place) in enumerate(shards):
            self._peers.append(_Peer(self._open(shard, handle, incarnation, place), incarnation))

    def _open(self, shard: int, handle: Any, incarnation: int, place: Place) -> Channel:
        here = Place.here()
        self._tray.connect(shard, place.near(here))
        heard = partial(self._hear, Life(self.setup.run, incarnation), shard, None)
        pieces = count_pieces(self._view[self.setup.sharding.slice(shard)].nbytes)
        return open_channel(handle, place, here, self._life, self.worker, heard, pieces)

    @ray.method(concurrency_group="inbox")
    def reconnect(
        self, shard: int, handle: Any, incarnation: int, place: Place, received: int
    ) -> None:
        """A shard has come back, knowing our steps up to `received`: ask what it has not heard."""
        with self._lock:
            peer = self._peers[shard]
            peer.channel.close()
            peer.channel = self._open(shard, handle, incarnation, place)
            peer.incarnation = incarnation
            unanswered, peer.unanswered = peer.unanswered, {}
            for asked in unanswered.values():
                if asked.kind != "push" or PushHeader(*asked.what).step > received:
                    self._ask(shard, asked)

    def run(self, step: int, row: int, heard: Sequence[int], used: int = NO_ROW) -> None:
        """Work until told to stop.

        A new worker begins at step 0 with the row given. One that takes a dead worker's place goes
        on at `step`, having heard what that one had confirmed, and waits for every shard. `used` is
        the last row that one pushed, because releases which tell of it may still come.
        """
        torch.set_num_threads(self.setup.threads)
        with self._lock:
            self._step, self._row = step, used
            for peer, sequence in zip(self._peers, heard, strict=True):
                peer.heard = sequence
                for old in [early for early in peer.early if early <= sequence]:
                    self._taken.done(peer.early.pop(old)[1])
            if row != NO_ROW:
                self._next_row = row
                self._do(self._half.begin())
            elif self._life.incarnation:
                self._do(self._half.replaced())
            else:
                self._half.rejoined()
            self._running = True
            for shard in range(len(self._peers)):
                self._early(shard)
        while True:
            begin = self._begins.get()
            if begin is None:
                return
            if isinstance(begin, BaseException):
                raise begin
            self._compute(begin)

    @ray.method(concurrency_group="inbox")
    def stop(self) -> None:
        self._begins.put(None)

    @ray.method(concurrency_group="inbox")
    def where(self) -> Where:
        with self._lock:
            idle = not (self._computing or self._ringing or not self._begins.empty())
            heard = tuple(peer.heard for peer in self._peers)
            return Where(idle, self._step - 1, heard, self._steps, self._busy_s, self._late_steps)

    @ray.method(concurrency_group="inbox", num_returns=0)
    def deliver(self, life: Life, shard: int, what: Released | Ticket, *payload: Any) -> None:
        self._hear(life, shard, None, [(what, received(payload[0], payload[1:]))])

    # What shards say.

    def _hear(
        self, life: Life, shard: int, asked: int | None, said: list[Packed] | BaseException
    ) -> None:
        """What a shard says, in answer to call number `asked` or by itself."""
        if life.run != self.setup.run:
            return  # the last words of a run that is over
        if isinstance(said, BaseException):
            self._begins.put(said)
            return
        with self._lock:
            peer = self._peers[shard]
            if life.incarnation < peer.incarnation:
                return
            if asked is not None:
                peer.unanswered.pop(asked, None)
            for what, payload in said:
                if not self._taken.there(payload):
                    return  # its shard has died; it will say so again
                if isinstance(what, Ticket):
                    self._ticket(what.row)
                elif what.sequence <= peer.heard:
                    self._taken.done(payload)
                else:
                    peer.early[what.sequence] = (what, payload)
            self._early(shard)

    def _early(self, shard: int) -> None:
        """Take releases in the order in which the shard gave them; those that come before the work
        begins wait for it, because only then is it known which ones have been heard."""
        peer = self._peers[shard]
        while self._running and peer.heard + 1 in peer.early:
            released, payload = peer.early.pop(peer.heard + 1)
            assert isinstance(released, Released)
            peer.heard = released.sequence
            self._ticket(released.row)
            self._versions[shard] = released.version
            before = self._half.have[shard]
            if released.version == self.setup.updates:
                self._half.ended(shard)
            commands = self._half.pulled(shard, released.version, self._clock())
            if self._half.have[shard] == released.version and released.version >= before:
                old = self._fresh.get(shard)
                self._fresh[shard] = payload
                payload = old
            if payload is not None:
                self._taken.done(payload)
            self._do(commands)

    def _ticket(self, row: int) -> None:
        if row > self._row and row != self._next_row:
            self._next_row = row
            self._tickets.put(row)

    def _do(self, commands: Sequence[WorkerCommand]) -> None:
        for command in commands:
            if isinstance(command, Start):
                if min(self._versions) >= self.setup.updates:
                    continue  # every shard is done: nobody would apply it
                begin = _Begin(command.stamp, tuple(self._half.have), self._fresh, self._clock())
                self._fresh = {}
                self._begins.put(begin)
            elif isinstance(command, Request):
                self._ask(command.shard, _Asked("request", (self.worker, command.at_least)))
            elif isinstance(command, SetTimer):
                self._ringing += 1
                self._timers.add(command.seconds, command.token)

    def _timer(self, token: int) -> None:
        with self._lock:
            self._ringing -= 1
            self._do(self._half.timer(token, self._clock()))

    def _ask(self, shard: int, asked: _Asked) -> None:
        peer, (kind, what, laid, extra) = self._peers[shard], asked
        number, peer.asked = peer.asked, peer.asked + 1
        peer.unanswered[number] = asked
        payload = None if laid is None else laid.payload(shard, self.setup.sharding.slice(shard))
        heard = partial(self._hear, Life(self.setup.run, peer.incarnation), shard, number)
        peer.channel.call(Call(kind, what, payload, extra), heard)

    # What the worker does.

    def _compute(self, begin: _Begin) -> None:
        self._computing = True
        sharding = self.setup.sharding
        for shard, payload in begin.fresh.items():
            self._taken.copy(payload, self._view[sharding.slice(shard)])
            self._taken.done(payload)
        begin.fresh.clear()  # what Ray carried is free at once, and its memory used again
        while not self._attempt(begin):
            begin = begin._replace(start_s=self._clock())

    def _attempt(self, begin: _Begin) -> bool:
        """Compute and push one gradient; False where it was NaN or infinite.

        Such a gradient is pushed as a header only and dropped by every shard; no policy hears of
        it, because the worker tries its next batch at the same view.
        """
        setup, step = self.setup, self._step
        began = time.perf_counter()
        row = self._wait_for_row()
        loss, grad, buffers = setup.task.gradient(self._view, Turn(self.worker, step, row))
        grad = setup.rule.prepare(grad)
        value = float(loss)
        wrong = not_finite(grad)
        finite = math.isfinite(value) and wrong is None
        imposed_s = self._imposed(begin.start_s, step)
        self._busy_s += time.perf_counter() - began
        with self._lock:  # a shard that comes back has its claims on slots made anew
            laid = self._tray.put(grad) if finite else None
        self._fuse.burn(step, "before_push")
        with self._lock:
            end_s = self._clock()
            if imposed_s is not None:
                behind_s = self._behind_s + end_s - begin.start_s - imposed_s
                self._behind_s = min(imposed_s, max(0.0, behind_s))
            self._row, self._step = row, step + 1
            self._steps += 1
            if finite:
                self._do(self._half.finished(end_s))
            facts = (row, self.worker, step, begin.stamp, begin.read, begin.start_s, end_s)
            for shard, peer in enumerate(self._peers):
                push = PushHeader(*facts, value, finite, peer.heard)
                extra = tuple(b.numpy() for b in buffers) if shard == 0 and finite else ()
                self._ask(shard, _Asked("push", tuple(push), laid, extra))
                if shard == 0:
                    self._fuse.burn(step, "between_pushes", after_s=0.05)
            self._computing = not finite
        self._fuse.burn(step, "after_push", after_s=0.05)
        self._refused = 0 if finite else self._refused + 1
        if self._refused == PATIENCE:
            if wrong is not None and math.isfinite(value):
                raise Diverged(max(begin.read), self.worker, wrong, "a gradient")
            raise Diverged(max(begin.read), self.worker, value)
        return finite

    def _wait_for_row(self) -> int:
        """The row of this gradient; asked for only where it starts without shard 0's release."""
        if self._next_row <= self._row:
            with self._lock:
                if self._next_row <= self._row:
                    self._ask(0, _Asked("ticket", (self.worker,)))
            while self._next_row <= self._row:
                self._tickets.get()
        return self._next_row

    def _imposed(self, start_s: float, step: int) -> float | None:
        """Keep the step's time, if times are imposed; a real step that took longer is counted.

        It counts from the moment in which the policy had enough to start, as in the schedule, and
        not from when this thread woke up. A sleep ends a little late, so what a step took too long
        is taken off the next one, at most as much as its own time: the times are kept on average.
        """
        if self.setup.times is None:
            return None
        step_s = float(self.setup.times.step_s(self.worker, step))
        worked_s = self._clock() - start_s
        self._late_steps += worked_s > step_s
        time.sleep(max(0.0, step_s - self._behind_s - worked_s))
        return step_s
