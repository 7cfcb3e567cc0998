"""A worker as a Ray actor: connections, timers, a thread that computes, and a lock around a
`WorkerProcess`.

What shards say comes in on the connections' threads and goes to the session at once, so that the
policy sees it when it comes and not when the gradient is done.
"""

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import ray
import torch
from numpy.typing import NDArray

from tardigrad.core.allocation import keep_freed_memory
from tardigrad.protocol.calls import (
    AskWorker,
    BeginWork,
    HoldSteps,
    MeetShard,
    StopWork,
    WorkerCall,
)
from tardigrad.protocol.messages import FromWorker, Hello, PushHeader
from tardigrad.protocol.worker_session import (
    Compute,
    Discard,
    Forget,
    Send,
    WorkerOutput,
    WorkerTimer,
)
from tardigrad.runtime.encoding import decode_from_shard, encode_from_worker
from tardigrad.runtime.faults import Fuse
from tardigrad.runtime.ray_setup import ActorPlace, RaySetup, RunClock
from tardigrad.runtime.timers import Timers
from tardigrad.runtime.worker_process import ComputedGradient, WorkerProcess
from tardigrad.transport.buffers import GradientBuffers, PayloadReader, SharedGradient, SlotOrArray
from tardigrad.transport.connect import connect
from tardigrad.transport.connection import Connection

CONNECT_S = 10.0
PAUSES_S = (0.05, 0.2, 1.0)
"""Between tries to connect, the last one for all that follow."""
RESEND_S = (2.0, 30.0)
"""What a shard has not acknowledged is said again after so long, at most so seldom. A connection
loses nothing, but a shard ignores what it cannot take yet."""


class LiveWorker(NamedTuple):
    """How a worker stands. `quiet`: it computes nothing, and every shard has all it said."""

    quiet: bool
    step: int
    steps: int
    busy_s: float
    late_steps: int


class _ShardLink:
    """A worker's way to one shard."""

    def __init__(self, place: ActorPlace, near: bool) -> None:
        self.place, self.near = place, near
        self.connection: Connection | None = None
        self.closed = False
        self.acked = -1
        self.wait_s = RESEND_S[0]
        self.say_again_at_s = 0.0


class WorkerActor:
    """`prepare` makes it a worker of a run, and later of another."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._open = False
        self._process: WorkerProcess | None = None
        keep_freed_memory()

    def prepare(self, setup: RaySetup, worker: int) -> ActorPlace:
        """Become worker number `worker` of a run; the answer is where this process is."""
        with self._lock:
            self._close()
            self.setup, self.worker = setup, worker
            self._process = None
            self._error: BaseException | None = None
            self._clock = RunClock(setup.began_s)
            theta = setup.run.task.start()
            shards = setup.run.shards
            self._buffers = GradientBuffers(len(theta), theta.dtype, shards, setup.shared_memory)
            self._reader = PayloadReader(worker)
            self._links: list[_ShardLink] = []
            self._shared: dict[int, SharedGradient] = {}
            self._work: queue.SimpleQueue[Compute | None] = queue.SimpleQueue()
            self._timers = Timers(self._rang)
            self._steps, self._busy_s, self._late_steps, self._behind_s = 0, 0.0, 0, 0.0
            self._here = ActorPlace.here()
            self._open = True
            return self._here

    @ray.method(concurrency_group="inbox")
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
                    self._links[shard].closed = True
                    if (old := self._links[shard].connection) is not None:
                        old.close("the shard is another process now")
                    self._links[shard] = self._link(shard, shards[shard])
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
            return None

    def _live(self) -> LiveWorker:
        quiet, step = (True, 0) if self._process is None else self._process.session.status
        return LiveWorker(quiet, step, self._steps, self._busy_s, self._late_steps)

    @ray.method(concurrency_group="watch")
    def watch(self) -> None:
        """Wait for the end; fails with the error that ended it, or as its process dies."""
        with self._ended:
            while self._open and self._error is None:
                self._ended.wait()
            if self._error is not None:
                raise self._error

    @ray.method(concurrency_group="inbox")
    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._work.put(None)
            self._timers.close()
            for link in self._links:
                link.closed = True
                if link.connection is not None:
                    link.connection.close("the run is over")
            self._buffers.close()
            self._ended.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._open and self._error is None:
                self._error = error
                self._ended.notify_all()

    def _begin(self, call: BeginWork, shards: Mapping[int, ActorPlace]) -> None:
        start = call.start
        self._life = start.life
        self._fuse = Fuse(self.setup.faults, "worker", self.worker, first=start.life == 0)
        self._process = WorkerProcess(self.setup.run, start, self._reader.copy)
        for shard in range(self.setup.run.shards):
            place = shards[shard]
            near = place.near(self._here) and self.setup.shared_memory
            self._buffers.connect(shard, near)
            self._links.append(_ShardLink(place, place.near(self._here)))
        for shard, link in enumerate(self._links):
            self._in_background(self._connect, shard, link)
        self._in_background(self._compute)
        self._in_background(self._resend)
        self._carry_out(self._process.session.begin(self._clock()))

    def _link(self, shard: int, place: ActorPlace) -> _ShardLink:
        link = _ShardLink(place, place.near(self._here))
        self._buffers.connect(shard, link.near and self.setup.shared_memory)
        self._in_background(self._connect, shard, link)
        return link

    def _in_background(self, do: Any, *arguments: Any) -> None:
        threading.Thread(target=self._guarded, args=(do, *arguments), daemon=True).start()

    def _guarded(self, do: Any, *arguments: Any) -> None:
        try:
            do(*arguments)
        except BaseException as error:  # ours, a task's or a policy's: the run ends with it
            self._fail(error)

    # Connections.

    def _connect(self, shard: int, link: _ShardLink) -> None:
        """Until it is there; a shard that has died is brought back, and then we are told."""
        here, tries = self._here, 0
        hello = [self.worker, self._life, here.node, here.user, here.pid]
        address = link.place.listener
        assert address is not None
        while not link.closed:
            with suppress(OSError):
                connection = connect(
                    address,
                    self.setup.secret,
                    link.near,
                    hello,
                    lambda c, header, arrays: self._heard(link, header, arrays),
                    lambda c, reason: self._parted(shard, link, c),
                    CONNECT_S,
                )
                with self._lock:
                    if link.closed:
                        connection.close("it is not needed any more")
                        return
                    link.connection = connection
                    self._say_again(shard, link)
                return
            time.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1

    def _parted(self, shard: int, link: _ShardLink, connection: Connection) -> None:
        with self._lock:
            if link.connection is connection:
                link.connection = None
            if not link.closed and self._open:
                self._in_background(self._connect, shard, link)

    def _heard(self, link: _ShardLink, header: list[Any], arrays: list[NDArray[Any]]) -> None:
        message, payloads = decode_from_shard(header, arrays)
        with self._lock:
            if link.closed or self._process is None or self._error is not None:
                return
            if not all(self._reader.there(payload) for payload in payloads):
                return  # its shard has died meanwhile
            link.acked, link.wait_s = message.acked, RESEND_S[0]
            try:
                self._carry_out(self._process.session.hear(message, payloads, self._clock()))
            except Exception as error:
                self._fail(error)

    def _resend(self) -> None:
        """Say again what a shard has not acknowledged for a while."""
        known = [(-2, 0.0)] * len(self._links)
        while self._open and self._error is None:
            time.sleep(RESEND_S[0] / 4)
            with self._lock:
                now_s = time.monotonic()
                for shard, link in enumerate(self._links):
                    assert self._process is not None
                    waiting = self._process.session.unacknowledged(shard)
                    if waiting is None or waiting != known[shard][0]:
                        known[shard] = (-2 if waiting is None else waiting, now_s)
                        link.wait_s = RESEND_S[0]
                    elif now_s - known[shard][1] >= link.wait_s:
                        known[shard] = (waiting, now_s)
                        link.wait_s = min(2 * link.wait_s, RESEND_S[1])
                        self._say_again(shard, link)

    def _say_again(self, shard: int, link: _ShardLink) -> None:
        assert self._process is not None
        for message in self._process.session.again(shard):
            self._send(shard, message)

    def _send(self, shard: int, message: FromWorker | Hello) -> None:
        """Nothing happens without a connection: as soon as there is one, all is said again."""
        connection = self._links[shard].connection
        if connection is None:
            return
        payload: SlotOrArray | None = None
        buffers: tuple[NDArray[Any], ...] = ()
        if isinstance(message, FromWorker) and isinstance(message.body, PushHeader):
            shared = self._shared.get(message.body.step)
            if shared is not None:
                assert self._process is not None
                part = self._process.part(message.body.step, shard)
                payload = shared.payload(shard, self.setup.run.sharding.slice(shard))
                buffers = tuple(b.numpy() for b in part.buffers) if part is not None else ()
        encoded = encode_from_worker(message, payload, buffers)
        connection.send(encoded.header, encoded.arrays)

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
                case Discard(payload):
                    self._reader.done(payload)
                case Forget(step):
                    assert self._process is not None
                    self._process.forget(output)
                    self._shared.pop(step, None)
                case WorkerTimer(seconds, token):
                    self._timers.add(seconds, token)

    def _rang(self, token: int) -> None:
        with self._lock:
            if self._open and self._process is not None and self._error is None:
                try:
                    self._carry_out(self._process.session.timer(token, self._clock()))
                except Exception as error:
                    self._fail(error)

    def _compute(self) -> None:
        torch.set_num_threads(self.setup.run.threads)
        process = self._process
        assert process is not None
        while (compute := self._work.get()) is not None:
            process.load(compute)
            for payload in compute.fresh.values():
                self._reader.done(payload)
            compute.fresh.clear()  # memory that came with a frame is free at once
            began = time.perf_counter()
            computed = process.gradient(compute)
            imposed_s = self._impose(compute)
            self._busy_s += time.perf_counter() - began
            self._push(process, compute, computed, imposed_s)

    def _push(
        self,
        process: WorkerProcess,
        compute: Compute,
        computed: ComputedGradient,
        imposed_s: float | None,
    ) -> None:
        step = compute.step
        self._fuse.burn("before_push", step)
        with self._lock:
            if not self._open:
                return
            if computed.wrong is None:
                self._shared[step] = self._buffers.put(computed.grad)
            end_s = self._clock()
            if imposed_s is not None:
                behind_s = self._behind_s + end_s - compute.start_s - imposed_s
                self._behind_s = min(imposed_s, max(0.0, behind_s))
            self._steps += 1
            self._carry_out(process.computed(compute, computed, end_s, end_s))
        self._fuse.burn("after_push", step, after_s=0.05)

    def _impose(self, compute: Compute) -> float | None:
        """Keep the step's time, if times are imposed; a real step that took longer is counted.

        It counts from the moment in which the policy had enough to start, as in the schedule, and
        not from when this thread woke up. A sleep ends a little late, so what a step took too long
        is taken off the next one, at most as much as its own time: the times are kept on average.
        """
        if self.setup.times is None:
            return None
        step_s = float(self.setup.times.step_s(self.worker, compute.step))
        worked_s = self._clock() - compute.start_s
        self._late_steps += worked_s > step_s
        time.sleep(max(0.0, step_s - self._behind_s - worked_s))
        return step_s
