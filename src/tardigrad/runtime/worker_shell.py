"""One life of a worker: connections, timers, a thread that computes, and a lock around a
`WorkerProcess`.

What shards say comes in on the connections' threads and goes to the session at once, so that the
policy sees it when it comes and not when the gradient is done.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tardigrad.links import Encoded, that_codes
from tardigrad.protocol.calls import (
    AskWorker,
    BeginWork,
    HoldSteps,
    MeetShard,
    StopWork,
    TakeState,
    TakeUnsent,
    WorkerCall,
)
from tardigrad.protocol.messages import FromWorker, Hello, PushHeader
from tardigrad.protocol.resending import CHECK_S, Resending
from tardigrad.protocol.worker_outputs import (
    Compute,
    Discard,
    Forget,
    Send,
    StopComputing,
    WorkerOutput,
    WorkerTimer,
)
from tardigrad.runtime.encoding import decode_from_shard, encode_from_worker
from tardigrad.runtime.faults import Fuse
from tardigrad.runtime.ray_setup import ActorPlace, RaySetup, RunClock
from tardigrad.runtime.shard_link import ShardLink
from tardigrad.runtime.timers import Timers
from tardigrad.runtime.worker_process import ComputedGradient, WorkerProcess
from tardigrad.transport.buffers import GradientBuffers, PayloadReader, SharedGradient, SlotOrArray


class LiveWorker(NamedTuple):
    """How a worker stands. `quiet`: it computes nothing, and every shard has all it said."""

    quiet: bool
    step: int
    steps: int
    busy_s: float
    late_steps: int


class WorkerShell:
    """An error ends it: whoever watches is told. Nothing of it acts once it is closed."""

    def __init__(self, setup: RaySetup, worker: int, here: ActorPlace) -> None:
        self.setup, self.worker, self._here = setup, worker, here
        theta, shards = setup.run.task.start(), setup.run.shards
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._closed = threading.Event()
        self._error: BaseException | None = None
        self._process: WorkerProcess | None = None
        self._clock = RunClock(setup.began_s)
        self._buffers = GradientBuffers(len(theta), theta.dtype, shards, setup.shared_memory)
        self._reader = PayloadReader(worker, views=setup.run.leaves_view)
        self._links: list[ShardLink] = []
        self._shared: dict[int, SharedGradient] = {}
        self._work: queue.SimpleQueue[Compute | None] = queue.SimpleQueue()
        self._timers = Timers(self._rang)
        self._stop = threading.Event()
        """Set when the gradient that is being computed is interrupted."""
        self._life = 0
        self._steps, self._busy_s, self._late_steps, self._behind_s = 0, 0.0, 0, 0.0

    def call(self, call: WorkerCall, shards: Mapping[int, ActorPlace]) -> Any:
        """What the driver asks; `shards` are where they are now."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if isinstance(call, BeginWork):
                if self._process is None:
                    self._begin(call, shards)
                return None
            process = self._process
            match call:
                case MeetShard(shard, began):
                    if process is None:
                        return True  # it will be told where all are when it begins
                    if not process.session.replaced_shard(shard, began):
                        return False
                    self._links[shard].close("the shard is another process now")
                    self._links[shard] = self._link(shard, shards[shard])
                    self._links[shard].start()
                    return True
                case HoldSteps(held) if process is not None:
                    if held:
                        process.session.hold()
                    else:
                        self._carry_out(process.session.go_on(self._clock()))
                case StopWork() if process is not None:
                    process.session.stop()
                case AskWorker():
                    return self._live()
                case TakeUnsent():
                    return {} if process is None else process.unsent()
                case TakeState():
                    return None if process is None else process.kept()
            return None

    def _live(self) -> LiveWorker:
        quiet, step = (True, 0) if self._process is None else self._process.session.status
        return LiveWorker(quiet, step, self._steps, self._busy_s, self._late_steps)

    def watch(self) -> None:
        """Wait for the end; fails with the error that ended it."""
        with self._ended:
            while not self._closed.is_set() and self._error is None:
                self._ended.wait()
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """A gradient that is being computed is computed to its end, and goes nowhere."""
        with self._lock:
            if not self._closed.is_set():
                self._closed.set()
                self._work.put(None)
                self._timers.close()
                for link in self._links:
                    link.close("the run is over")
                self._buffers.close()
                self._ended.notify_all()

    @property
    def _going_on(self) -> bool:
        return not self._closed.is_set() and self._error is None

    def _begin(self, call: BeginWork, shards: Mapping[int, ActorPlace]) -> None:
        start = call.start
        self._life = start.life
        began = start.step if start.life else None
        self._fuse = Fuse(self.setup.faults, "worker", self.worker, began)
        reader = self._reader
        process = WorkerProcess(self.setup.run, start, reader.copy, reader.view, call.kept)
        self._links = [self._link(shard, shards[shard]) for shard in range(self.setup.run.shards)]
        self._process = process
        self._resending = Resending(process.session, self.setup.run.shards)
        for link in self._links:
            link.start()
        for do in (self._compute, self._resend):
            threading.Thread(
                target=self._guarded, args=(do,), name=do.__name__, daemon=True
            ).start()
        self._carry_out(process.session.begin(self._clock()))

    def _guarded(self, do: Callable[[], None]) -> None:
        """An error of ours, a task's or a policy's ends the run."""
        try:
            do()
        except BaseException as error:
            with self._lock:
                if self._going_on:
                    self._error = error
                    self._ended.notify_all()

    # Connections.

    def _link(self, shard: int, place: ActorPlace) -> ShardLink:
        here, near = self._here, place.near(self._here)
        self._buffers.connect(shard, near and self.setup.shared_memory)
        hello = [self.worker, self._life, here.node, here.user, here.pid]
        assert place.listener is not None
        return ShardLink(
            place.listener,
            self.setup.secret,
            near,
            hello,
            lambda link, header, arrays: self._heard(shard, link, header, arrays),
            lambda link: self._guarded(lambda: self._say_again(shard, link)),
        )

    def _heard(
        self, shard: int, link: ShardLink, header: list[Any], arrays: list[NDArray[Any]]
    ) -> None:
        message, payloads = decode_from_shard(header, arrays)
        with self._lock:
            process = self._process
            if link.closed or process is None or not self._going_on:
                return
            for payload in payloads:
                if payload is not None and not self._reader.there(payload):
                    return  # its shard has died meanwhile
            self._resending.heard(shard)
            self._guarded(
                lambda: self._carry_out(process.session.hear(message, payloads, self._clock()))
            )

    def _resend(self) -> None:
        while not self._closed.wait(CHECK_S):
            with self._lock:
                if not self._going_on:
                    return
                for shard in self._resending.due(time.monotonic()):
                    self._say_again(shard, self._links[shard])

    def _say_again(self, shard: int, link: ShardLink) -> None:
        with self._lock:
            if link.closed or not self._going_on:
                return
            assert self._process is not None
            for message in self._process.session.again(shard):
                self._send(shard, message)

    def _send(self, shard: int, message: FromWorker | Hello) -> None:
        payload: SlotOrArray | Encoded | None = None
        buffers: tuple[NDArray[Any], ...] = ()
        if isinstance(message, FromWorker) and isinstance(message.body, PushHeader):
            assert self._process is not None
            body = message.body
            payload = self._process.encoded(body, shard)
            if payload is None and body.has_numbers and not body.merged:
                where = self.setup.run.sharding.slice(shard)
                payload = self._shared[body.row].payload(shard, where)
            elif payload is None and (part := self._process.part(body, shard)) is not None:
                payload = part.grad.numpy()  # a mean, for this shard alone
            buffers = tuple([b.numpy() for b in self._process.buffers(body, shard)])
        self._links[shard].send(encode_from_worker(message, payload, buffers))

    # What follows.

    def _carry_out(self, outputs: Sequence[WorkerOutput]) -> None:
        for output in outputs:
            match output:
                case Send(shard, message):
                    self._send(shard, message)
                    if isinstance(message.body, PushHeader) and shard == 0:
                        self._fuse.burn("between_pushes", message.body.step, after_s=0.05)
                case Compute():
                    self._work.put(output)
                case StopComputing():
                    self._stop.set()
                case Discard(payload):
                    self._reader.done(payload)
                case Forget(row):
                    assert self._process is not None
                    self._process.forget(output)
                    self._shared.pop(row, None)
                case WorkerTimer(seconds, token):
                    self._timers.add(seconds, token)

    def _rang(self, token: int) -> None:
        with self._lock:
            process = self._process
            if process is not None and self._going_on:
                self._guarded(lambda: self._carry_out(process.session.timer(token, self._clock())))

    def _compute(self) -> None:
        torch.set_num_threads(self.setup.run.threads)
        process = self._process
        assert process is not None
        while (compute := self._work.get()) is not None:
            process.load(compute)
            for payload in compute.fresh.values():
                self._reader.done(payload)
            compute.fresh.clear()  # memory that came with a frame is free, or the view
            began = time.perf_counter()
            self._stop.clear()
            computed = process.gradient(compute)
            imposed_s = None if computed is None else self._impose(compute)
            self._busy_s += time.perf_counter() - began
            self._push(process, compute, computed, imposed_s)

    def _push(
        self,
        process: WorkerProcess,
        compute: Compute,
        computed: ComputedGradient | None,
        imposed_s: float | None,
    ) -> None:
        step = compute.step
        self._fuse.burn("before_push", step)
        with self._lock:
            if not self._going_on:
                return
            end_s = self._clock()
            if imposed_s is not None:
                behind_s = self._behind_s + end_s - compute.start_s - imposed_s
                self._behind_s = min(imposed_s, max(0.0, behind_s))
            self._steps += 1
            outputs = process.computed(compute, computed, end_s, end_s)
            takers = {o.shard for o in outputs if isinstance(o, Send) and _whole(o, compute.row)}
            if takers and computed is not None and not that_codes(self.setup.run.codec):
                self._shared[compute.row] = self._buffers.put(computed.grad, takers)
            self._carry_out(outputs)
        self._fuse.burn("after_push", step, after_s=0.05)

    def _impose(self, compute: Compute) -> float | None:
        """Keep the step's time, if times are imposed; a real step that took longer is counted.

        It counts from the moment in which the policy had enough to start, as in the schedule, and
        not from when this thread woke up. A sleep ends a little late, so what a step took too long
        is taken off the next one, at most as much as its own time: the times are kept on average.
        """
        if self.setup.times is None:
            return None
        steps, _, own = self.setup.run.deal(compute.step, compute.row, compute.deal)
        step_s = float(self.setup.times.step_s(self.worker, own + np.arange(steps)).sum())
        worked_s = self._clock() - compute.start_s
        self._late_steps += worked_s > step_s
        interrupted = self._stop.wait(max(0.0, step_s - self._behind_s - worked_s))
        return None if interrupted else step_s


def _whole(send: Send, row: int) -> bool:
    """Whether it pushes this gradient, as it is."""
    push = send.message.body
    return isinstance(push, PushHeader) and push.row == row and push.has_numbers and not push.merged
