"""A shard's process: moves messages and timers between workers, the log and the `Server`.

Every event is decided, logged and only then carried out; nothing leaves before it is logged.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import ray
import torch
from torch import Tensor

from tardigrad.core.allocation import keep_freed_memory
from tardigrad.engine.checkpoint import save_checkpoint
from tardigrad.runtime.arena import Address, Payload
from tardigrad.runtime.control import Refused
from tardigrad.runtime.cut import cut_file
from tardigrad.runtime.door import Door
from tardigrad.runtime.faults import Fuse
from tardigrad.runtime.log import Log, mend_log, read_log
from tardigrad.runtime.messages import (
    Applied,
    Call,
    Decided,
    Event,
    Packed,
    PushHeader,
    Released,
    Ticket,
    Timed,
)
from tardigrad.runtime.server import Server, Snapshot
from tardigrad.runtime.setup import Clock, Life, Place, Setup
from tardigrad.runtime.standing import End, ShardStatus, WorkerAddress
from tardigrad.runtime.state import make_server, refeed
from tardigrad.runtime.timers import Timers
from tardigrad.runtime.transport import Shelf, Taken, answer, arguments, received

Saved = tuple[Mapping[str, Tensor], Mapping[str, Any], Sequence[Snapshot]]


class ShardHost:
    """One shard, made into an actor by the driver; `prepare` gives it a run, and later another."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._reached = threading.Condition(self._lock)
        self._awaited = 0
        self._open = False
        keep_freed_memory()

    def prepare(
        self, setup: Setup, shard: int, incarnation: int, saved: Saved | None = None
    ) -> Place:
        """Become shard number `shard` of a run, from its log and `saved`, what a cut holds.

        The answer is where this process is.
        """
        with self._lock:
            self._prepare(setup, shard, incarnation, saved)
            self._open = True
        return self._here

    def _prepare(self, setup: Setup, shard: int, incarnation: int, saved: Saved | None) -> None:
        torch.set_num_threads(setup.threads)
        self.setup = setup
        self.shard = shard
        self._life = Life(setup.run, incarnation)
        self._part = setup.sharding.slice(shard)
        self._clock = Clock(setup.began_s)
        self._fuse = Fuse(setup.faults, "shard", shard, incarnation)
        path = setup.log_path(shard)
        story = read_log(path)
        mend_log(path, story)
        self.server: Server = make_server(setup, shard)
        refeed(self.server.control, story.lines)
        self._lines = len(story.lines)
        if saved is not None:
            tensors, facts, snapshots = saved
            self.server.restore(tensors, facts)
            self.server.snapshots = list(snapshots)
        self._log = Log(path, setup.sync_log)
        self._log.start(incarnation, self._clock())
        self._shelf = Shelf(self.server.shard.sent, setup.shared_memory)
        self.server.place, self.server.keep = self._shelf.place, self._shelf.keep
        if self._shelf.shared:
            self.server.shard.use_places()
        self._taken = Taken(shard)
        self._links: dict[int, WorkerAddress] = {}
        self._missed: dict[int, list[Released]] = {}
        """Releases that a worker was not there to hear."""
        self._payloads: dict[int, Address] = {}
        self._last: dict[int, tuple[Any, ...]] = {}
        for line in story.lines:
            if line.event.kind == "push":
                self._last[line.event.what[1]] = line.event.what
        self._holding = False
        self._held: list[Released | Ticket] = []
        self._bytes_in = 0
        self._dropped: dict[int, int] = {}
        self._delays: dict[int, tuple[int, int]] = {}
        self._door = Door(lambda life, call: self.call(life, *call)) if self._shelf.shared else None
        self._here = Place.here(self._door.name if self._door else "")
        self._timers = Timers(self._timer)
        for token, due_s in self.server.control.timers:
            self._timers.add(max(0.0, due_s - self._clock()), token)

    # What workers call.

    def call(
        self,
        life: Life,
        kind: str,
        what: tuple[Any, ...],
        payload: Payload = None,
        extra: tuple[Any, ...] = (),
    ) -> list[Packed]:
        """A `Call` of a worker; the answer carries its release, if it is released at once."""
        push = PushHeader(*what) if kind == "push" else None
        worker = what[0] if push is None else push.worker
        with self._lock:
            if self._stale(worker, life):
                return []
            if push is not None:
                if push.step <= self.server.control.received.get(worker, -1):
                    return []  # sent again after we came back, but it was in the log
                self._arrive(push, payload, extra)
            return self._handle(Event(kind, self._clock(), what), worker)

    def call_by_ray(self, life: Life, pieces: int, call: Call, *payload: Any) -> Any:
        """The same, with numbers as `arguments` and in 1 + `pieces` results."""
        call = call._replace(payload=received(payload[0], payload[1:]))
        return answer(self.call(life, *call), pieces)

    def _arrive(self, push: PushHeader, payload: Payload, extra: tuple[Any, ...]) -> None:
        self.server.control.check(push)
        grad = self._grad(push, payload)
        buffers = tuple(torch.from_numpy(array.copy()) for array in extra)
        self.server.arrive(push, grad, buffers)
        if isinstance(payload, Address):
            self._payloads[push.row] = payload
        self._last[push.worker] = tuple(push)

    def _stale(self, worker: int, life: Life) -> bool:
        """Whether the caller is of another run, or a worker that has been replaced or has left."""
        link = self._links.get(worker)
        if not self._open or life.run != self.setup.run or link is None:
            return True
        return life.incarnation < link.incarnation

    def _grad(self, push: PushHeader, payload: Payload) -> Tensor | None:
        if payload is None:
            return None
        whole = self.setup.sharding.bounds[-1]
        grad = self._taken.look(payload, self._part if self._whole(payload) else None)
        expected, dtype = self._part.stop - self._part.start, self.server.shard.theta.dtype
        if len(grad) != expected or grad.dtype != dtype:
            raise Refused(
                f"push refused: worker {push.worker}, step {push.step}, at shard {self.shard}: "
                f"it sent {len(grad)} numbers of {grad.dtype}, this shard holds {expected} of "
                f"{dtype} (of {whole} in all)"
            )
        self._bytes_in += grad.numel() * grad.itemsize
        return grad

    @staticmethod
    def _whole(payload: Payload) -> bool:
        """Slots hold whole gradients; arrays only our slice."""
        return isinstance(payload, Address)

    # What the driver calls.

    @ray.method(concurrency_group="control")
    def connect(self, worker: int, link: WorkerAddress) -> End:
        """A worker is (again) there. Calls of its earlier lives are refused from now on."""
        with self._lock:
            old = self._links.get(worker)
            if old is not None:
                self._forget(old.place.pid)
            self._links[worker] = link
            self._shelf.connect(worker, link.place.near(self._here))
            control = self.server.control
            heard = control.heard[worker]
            self._missed[worker] = [r for r in control.releases[worker] if r.sequence > heard]
            if link.incarnation > control.incarnation.get(worker, 0):
                self._handle(Event("replace", self._clock(), (worker, link.incarnation)), None)
            return self._end(worker)

    @ray.method(concurrency_group="control")
    def complete(self, header: tuple[Any, ...], grad: Any, extra: tuple[Any, ...]) -> End:
        """A dead worker's gradient that other shards have, computed again for this one."""
        with self._lock:
            push = PushHeader(*header)
            releases = self.server.control.releases[push.worker]
            heard = [r.sequence for r in releases if r.version == push.read[self.shard]]
            push = push._replace(heard=max(heard, default=0))
            if push.step == self.server.control.received[push.worker] + 1:
                buffers = tuple(torch.from_numpy(array.copy()) for array in extra)
                self.server.arrive(push, self._grad(push, grad), buffers)
                self._last[push.worker] = tuple(push)
                self._handle(Event("push", self._clock(), tuple(push)), None)
            return self._end(push.worker)

    @ray.method(concurrency_group="control")
    def resend(self, worker: int) -> None:
        """What the worker, or the one in whose place it is, has missed. Each once: a slot that is
        given twice would be free again when one of the two is done with."""
        with self._lock:
            for released in self._missed.pop(worker, []):
                # A gradient completed meanwhile may show that it was heard after all.
                if released.sequence > self.server.control.heard[worker]:
                    self._send(released)

    @ray.method(concurrency_group="control")
    def join(self, worker: int, link: WorkerAddress) -> None:
        """Once, however often it is said."""
        with self._lock:
            if worker not in self.server.control.received:
                self._links[worker] = link
                self._shelf.connect(worker, link.place.near(self._here))
                self._handle(Event("join", self._clock(), (worker,)), None)

    @ray.method(concurrency_group="control")
    def leave(self, worker: int, lost: Sequence[tuple[Any, ...]] = ()) -> None:
        """Once, however often it is said. `lost` are headers of gradients that came to other shards
        only, before the worker died."""
        with self._lock:
            if worker not in self.server.control.received:
                return
            link = self._links.pop(worker, None)
            if self._door is not None:
                self._door.show_out(worker)
            for header in lost:
                if (
                    PushHeader(*header).step > self.server.control.received[worker]
                ):  # else it came late
                    self._handle(Event("lost", self._clock(), tuple(header)), None)
            self._handle(Event("leave", self._clock(), (worker,)), None)
            self._shelf.connect(worker, False)
            if link is not None:
                self._forget(link.place.pid)

    def _forget(self, pid: int) -> None:
        """Of a worker's process that may have ended: what it pushed can still be applied, but there
        is nobody to give its memory back to."""
        self._taken.forget(pid)
        theirs = [row for row, slot in self._payloads.items() if slot.pid == pid]
        for row in theirs:
            del self._payloads[row]

    @ray.method(concurrency_group="control")
    def hold(self) -> None:
        """Keep releases back until `resume`."""
        with self._lock:
            self._holding = True

    @ray.method(concurrency_group="control")
    def resume(self) -> None:
        with self._lock:
            self._holding = False
            held, self._held = self._held, []
            for item in held:
                self._send(item)

    @ray.method(concurrency_group="control")
    def channels(self) -> dict[int, End]:
        with self._lock:
            return {worker: self._end(worker) for worker in self.server.control.received}

    @ray.method(concurrency_group="control")
    def save(self, number: int) -> int:
        """This shard's part of a cut; the answer is how many events it has behind it."""
        with self._lock:
            facts = {**self.server.facts(), "events": self._lines}
            path = cut_file(self.setup.folder, number, self.shard)
            save_checkpoint(path, self.server.tensors(), facts)
            return self._lines

    @ray.method(concurrency_group="control")
    def status(self) -> ShardStatus:
        with self._lock:
            return ShardStatus(
                self.server.shard.version,
                len(self.server.pending),
                self._bytes_in,
                self._shelf.bytes_out,
                dict(self.server.control.received),
                dict(self._dropped),
                dict(self._delays),
            )

    @ray.method(concurrency_group="control")
    def snapshots(self) -> list[Snapshot]:
        """Versions to evaluate, handed over once."""
        with self._lock:
            taken = list(self.server.snapshots)
            self.server.snapshots.clear()
            return taken

    @ray.method(concurrency_group="control")
    def final(self) -> tuple[Tensor, Tensor | None, tuple[Tensor, ...], str]:
        """θ, its running average, the buffers and θ's digest. The run is over here."""
        with self._lock:
            shard = self.server.shard
            average = shard.state.average[0] if shard.state.average else None
            if self._open:  # asked again where another shard died meanwhile
                self._open = False
                self._timers.close()
                self._log.close()
                self._shelf.close()
                if self._door is not None:
                    self._door.close()
            return shard.theta, average, self.server.buffers, self.server.digest()

    @ray.method(concurrency_group="watch")
    def watch(self, version: int) -> int:
        """Wait until the shard is at this version; fails as soon as its process dies."""
        with self._reached:
            self._awaited = version
            while self.server.shard.version < version:
                self._reached.wait()
            return self.server.shard.version

    # How an event is handled.

    def _handle(self, event: Event, caller: int | None) -> list[Packed]:
        server, control = self.server, self.server.control
        before = control.version
        headers = dict(control.rows)
        if event.kind == "push":
            headers[event.what[0]] = PushHeader(*event.what)
        decided = control.decide(event)
        if control.version != before:
            self._fuse.burn(control.version, "before_log")
        self._log.event(event, decided)
        self._lines += 1
        if control.version != before:
            self._fuse.burn(control.version, "before_release")
        self._count(decided, headers, before)
        last_update = max((i for i, d in enumerate(decided) if isinstance(d, Applied)), default=-1)
        reply: list[Packed] = []
        for item in server.carry_out(event, decided, headers):
            if item.worker == caller and not self._holding and decided.index(item) > last_update:
                reply.append(self._packed(item))
            else:
                self._send(item, many=len(decided) > 2)
        for timer in decided:
            if isinstance(timer, Timed):
                self._timers.add(timer.seconds, timer.token)
        for row in server.consumed:
            payload = self._payloads.pop(row, None)
            if payload is not None:
                self._taken.done(payload)
        server.consumed.clear()
        if control.version != before:
            self._fuse.burn(control.version, "after_release")
            self._digest()
            if control.version >= self._awaited:  # not before: waking a thread costs an update time
                self._reached.notify_all()
        return reply

    def _send(self, item: Released | Ticket, many: bool = False) -> None:
        if self._holding:
            self._held.append(item)
            return
        link = self._links.get(item.worker)
        if link is None:
            return
        if self._door is None or not link.place.near(self._here):
            what, payload = self._packed(item, many)
            link.handle.deliver.remote(self._life, self.shard, what, *arguments(payload))
        elif self._door.reaches(item.worker, link.incarnation):
            self._door.deliver(item.worker, self._packed(item))
        elif isinstance(item, Released):
            self._missed.setdefault(item.worker, []).append(item)

    def _packed(self, item: Released | Ticket, many: bool = False) -> Packed:
        if isinstance(item, Ticket):
            return item, None
        sent, version = self.server.sent, item.version
        sent[version] = self._shelf.share(item.worker, version, sent[version])
        return item, self._shelf.put(item.worker, version, sent[version], many)

    def _timer(self, token: int) -> None:
        with self._lock:
            if self._open:
                self._handle(Event("timer", self._clock(), (token,)), None)

    def _digest(self) -> None:
        every, version = self.setup.digest_every, self.server.shard.version
        if every and version % every == 0:
            self._log.digest(version, self.server.digest(), self._clock())

    def _end(self, worker: int) -> End:
        control = self.server.control
        held = {i.sequence for i in self._held if isinstance(i, Released) and i.worker == worker}
        sent = [r.sequence for r in control.releases[worker] if r.sequence not in held]
        return End(
            control.received[worker],
            control.heard[worker],
            max(sent, default=control.heard[worker]),
            self._last.get(worker),
        )

    def _count(
        self, decided: Sequence[Decided], headers: Mapping[int, PushHeader], version: int
    ) -> None:
        """For whoever watches."""
        for item in decided:
            if isinstance(item, Applied):
                for row in item.rows:
                    push = headers[row]
                    applied, late = self._delays.get(push.worker, (0, 0))
                    delay = version - push.read[self.shard]
                    self._delays[push.worker] = (applied + 1, late + delay)
                version += 1
            elif not isinstance(item, Released | Ticket | Timed) and item.row in headers:
                worker = headers[item.row].worker
                self._dropped[worker] = self._dropped.get(worker, 0) + 1
