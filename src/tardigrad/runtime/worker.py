"""A worker: computes gradients, pushes them, and starts again when its policy says it has enough.

Two threads: `run` computes; answers of shards come in on others and go to the pull half at once,
under a lock, so that the policy sees them when they come and not when the gradient is done.
"""

import math
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError
from torch import Tensor

from tardigrad.engine import Diverged
from tardigrad.policies import Request, SetTimer, Start
from tardigrad.policies.machine import WorkerCommand
from tardigrad.runtime.faults import Fuse
from tardigrad.runtime.memory import keep_freed_memory
from tardigrad.runtime.messages import NO_ROW, Push, Released, Ticket
from tardigrad.runtime.setup import Clock, Life, Place, Setup
from tardigrad.runtime.timers import Timers
from tardigrad.runtime.transport import Laid, Payload, Taken, Tray
from tardigrad.tasks import Turn

Answer = tuple[Released | Ticket, Payload]

PATIENCE = 10
"""Gradients in a row that may be NaN or infinite before the run is called diverged."""

UNREACHABLE_S = 0.5
"""How long to wait before sending again to a shard that cannot be reached for the moment."""


class _Begin(NamedTuple):
    """A gradient to compute: everything that was fixed when the policy said so."""

    stamp: int
    read: tuple[int, ...]
    fresh: dict[int, Payload]
    """Versions that came since the last start, by shard."""
    start_s: float


class _Channel:
    """What a worker knows of one shard."""

    def __init__(self, handle: Any, incarnation: int, heard: int) -> None:
        self.handle = handle
        self.incarnation = incarnation
        self.heard = heard
        self.early: dict[int, Answer] = {}
        """Releases that came before their turn, by sequence."""
        self.unanswered: dict[int, tuple[Push, Laid | None, tuple[Tensor, ...]]] = {}
        """Pushes, by step, of which it is not known that the shard has logged them."""


class Where(NamedTuple):
    """Where a worker stands; `idle`: it will do nothing until a shard releases it."""

    idle: bool
    pushed: int
    heard: tuple[int, ...]
    steps: int
    busy_s: float
    late_steps: int


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
        self._channels: list[_Channel] = []
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
        self._refused = 0
        return Place.here()

    def connect(self, shards: Sequence[tuple[Any, int, Place]]) -> None:
        """The shards' handles, incarnations and places, before anything else."""
        here = Place.here()
        self._channels = [_Channel(handle, life, -1) for handle, life, _ in shards]
        for shard, (_, _, place) in enumerate(shards):
            self._tray.connect(shard, place.near(here))

    @ray.method(concurrency_group="inbox")
    def reconnect(
        self, shard: int, handle: Any, incarnation: int, place: Place, received: int
    ) -> None:
        """A shard has come back, knowing our steps up to `received`: send what it has not got."""
        with self._lock:
            channel = self._channels[shard]
            channel.handle, channel.incarnation = handle, incarnation
            channel.early.clear()
            self._tray.connect(shard, place.near(Place.here()))
            for step in sorted(channel.unanswered):
                if step <= received:
                    del channel.unanswered[step]
                else:
                    self._post(shard, *channel.unanswered[step])

    def run(self, step: int, row: int, heard: Sequence[int]) -> None:
        """Work until told to stop.

        A new worker begins at step 0 with the row given. One that takes a dead worker's place goes
        on at `step`, having heard what that one had confirmed, and waits for every shard.
        """
        torch.set_num_threads(self.setup.threads)
        with self._lock:
            self._step = step
            for channel, sequence in zip(self._channels, heard, strict=True):
                channel.heard = sequence
            if row != NO_ROW:
                self._next_row = row
                self._do(self._half.begin())
            else:
                self._half.rejoined()
            for shard in range(len(self._channels)):
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
            heard = tuple(channel.heard for channel in self._channels)
            return Where(idle, self._step - 1, heard, self._steps, self._busy_s, self._late_steps)

    @ray.method(concurrency_group="inbox", num_returns=0)
    def deliver(self, life: Life, shard: int, what: Released | Ticket, payload: Payload) -> None:
        if life.run == self.setup.run:
            self._deliver(shard, life.incarnation, [(what, payload)])

    # What shards say.

    def _deliver(self, shard: int, incarnation: int, answers: Sequence[Answer]) -> None:
        with self._lock:
            channel = self._channels[shard]
            if incarnation < channel.incarnation:
                return
            for what, payload in answers:
                if isinstance(what, Ticket):
                    self._ticket(what.row)
                elif what.sequence <= channel.heard:
                    self._taken.done(payload)
                else:
                    channel.early[what.sequence] = (what, payload)
            self._early(shard)

    def _early(self, shard: int) -> None:
        """Take releases in the order in which the shard gave them."""
        channel = self._channels[shard]
        while channel.heard + 1 in channel.early:
            released, payload = channel.early.pop(channel.heard + 1)
            assert isinstance(released, Released)
            channel.heard = released.sequence
            self._ticket(released.row)
            self._versions[shard] = released.version
            before = self._half.have[shard]
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
                channel = self._channels[command.shard]
                self._ask(command.shard, channel.handle.request, command.at_least)
            elif isinstance(command, SetTimer):
                self._ringing += 1
                self._timers.add(command.seconds, command.token)

    def _timer(self, token: int) -> None:
        with self._lock:
            self._ringing -= 1
            self._do(self._half.timer(token, self._clock()))

    def _ask(self, shard: int, method: Any, *what: Any) -> None:
        reference = method.remote(self._life, self.worker, *what)
        life = self._channels[shard].incarnation
        reference.future().add_done_callback(lambda f: self._answered(shard, life, None, f))

    def _answered(
        self, shard: int, incarnation: int, step: int | None, answer: "Future[Any]"
    ) -> None:
        """The reply to a call: what was released in it."""
        try:
            answers = answer.result()
        except RayTaskError as error:  # refused: the error names the worker and says why
            self._begins.put(error.cause)
        except ActorUnavailableError:
            again = threading.Timer(UNREACHABLE_S, self._again, (shard, incarnation, step))
            again.daemon = True
            again.start()
        except RayActorError:
            pass  # the shard has died; the driver brings it back and reconnects
        else:
            with self._lock:
                channel = self._channels[shard]
                if step is not None and incarnation == channel.incarnation:
                    channel.unanswered.pop(step, None)
            self._deliver(shard, incarnation, answers)

    def _again(self, shard: int, incarnation: int, step: int | None) -> None:
        """Send a push once more, unless it has arrived or the shard has changed meanwhile."""
        with self._lock:
            channel = self._channels[shard]
            if step in channel.unanswered and incarnation == channel.incarnation:
                self._post(shard, *channel.unanswered[step])

    # What the worker does.

    def _compute(self, begin: _Begin) -> None:
        self._computing = True
        sharding = self.setup.sharding
        for shard, payload in begin.fresh.items():
            self._view[sharding.slice(shard)] = self._taken.look(payload)
            self._taken.done(payload)
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
        finite = math.isfinite(value) and _finite(grad)
        self._sleep_until(began, step)
        self._busy_s += time.perf_counter() - began
        laid = self._tray.put(grad) if finite else None
        self._fuse.burn(step, "before_push")
        with self._lock:
            end_s = self._clock()
            self._row, self._step = row, step + 1
            self._steps += 1
            if finite:
                self._do(self._half.finished(end_s))
            facts = (row, self.worker, step, begin.stamp, begin.read, begin.start_s, end_s)
            for shard, channel in enumerate(self._channels):
                push = Push(*facts, value, finite, channel.heard)
                self._post(shard, push, laid, buffers if shard == 0 and finite else ())
                if shard == 0:
                    self._fuse.burn(step, "between_pushes", after_s=0.05)
            self._computing = not finite
        self._fuse.burn(step, "after_push", after_s=0.05)
        self._refused = 0 if finite else self._refused + 1
        if self._refused == PATIENCE:
            what, found = ("a gradient", math.nan) if math.isfinite(value) else ("the loss", value)
            raise Diverged(max(begin.read), self.worker, found, what)
        return finite

    def _post(self, shard: int, push: Push, laid: Laid | None, buffers: tuple[Tensor, ...]) -> None:
        channel = self._channels[shard]
        channel.unanswered[push.step] = (push, laid, buffers)
        payload = None if laid is None else laid.payload(shard, self.setup.sharding.slice(shard))
        extra = tuple(tensor.numpy() for tensor in buffers)
        reference = channel.handle.push.remote(self._life, tuple(push), payload, extra)
        life = channel.incarnation
        reference.future().add_done_callback(lambda f: self._answered(shard, life, push.step, f))

    def _wait_for_row(self) -> int:
        """The row of this gradient; asked for only where it starts without shard 0's release."""
        if self._next_row <= self._row:
            with self._lock:
                if self._next_row <= self._row:
                    self._ask(0, self._channels[0].handle.ticket)
            while self._next_row <= self._row:
                self._tickets.get()
        return self._next_row

    def _sleep_until(self, began: float, step: int) -> None:
        """Impose the step's time, if times are imposed; a real step that took longer is counted."""
        if self.setup.times is None:
            return
        left = float(self.setup.times.step_s(self.worker, step)) - (time.perf_counter() - began)
        if left > 0:
            time.sleep(left)
        else:
            self._late_steps += 1


def _finite(grad: Tensor) -> bool:
    """Whether all numbers are finite. A finite sum proves it; an overflowing one proves nothing."""
    return math.isfinite(float(grad.sum())) or bool(torch.isfinite(grad).all())
