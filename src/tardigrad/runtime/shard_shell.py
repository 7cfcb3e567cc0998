"""One life of a shard: a listener, timers and a lock around a `ShardProcess`."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from tardigrad.links import Encoded
from tardigrad.protocol.calls import AskShard, LeaveWorker, ShardCall
from tardigrad.protocol.log import LogEntry, Opening
from tardigrad.protocol.messages import (
    FromShard,
    FromWorker,
    Hello,
    PushHeader,
    Released,
    TimerSet,
)
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.gradients import RowPart
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.replica import ShardReplica
from tardigrad.recording.shard_logs import log_name
from tardigrad.runtime.encoding import decode_from_worker, encode_from_shard
from tardigrad.runtime.faults import Fuse
from tardigrad.runtime.late_files import wait_until_seen
from tardigrad.runtime.ray_setup import ActorPlace, RaySetup, RunClock
from tardigrad.runtime.shard_process import ShardOrigin, ShardProcess, ShardStatus
from tardigrad.runtime.timers import Timers
from tardigrad.transport.arena import SlotAddress
from tardigrad.transport.buffers import PayloadReader, SlotOrArray, VersionBuffers
from tardigrad.transport.connection import Connection
from tardigrad.transport.listener import Listener


class SentOrigin(NamedTuple):
    """A `ShardOrigin` as it is sent to an actor, which makes its replica from it."""

    opening: Opening
    entries: Sequence[LogEntry]
    added: Sequence[LogEntry]
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]

    @staticmethod
    def of(recovered: RecoveredRun, shard: int, epoch: int) -> "SentOrigin":
        story, replica = recovered.stories[shard], recovered.replicas[shard]
        opening = Opening(shard, epoch, story.epoch, story.size)
        added = recovered.added[shard]
        return SentOrigin(opening, story.entries, added, replica.tensors(), replica.facts())

    def made(self, setup: RaySetup) -> ShardOrigin:
        replica = ShardReplica(setup.run, self.opening.shard)
        replica.refeed([*self.entries, *self.added])
        replica.restore(self.tensors, self.facts)
        return ShardOrigin(self.opening.epoch, replica, self.opening, self.added)


class LiveShard(NamedTuple):
    """How a shard stands, for whoever watches."""

    version: int
    queue: int
    bytes_in: int
    bytes_out: int
    received: dict[int, int]
    dropped: dict[int, int]
    delays: dict[int, tuple[int, int]]
    """Per worker: gradients applied, and the sum of their delays."""
    loss: float = math.nan
    """The mean batch loss of the last update."""


class _Peer:
    """A worker that has come in, and which releases it was sent through this connection: a slot
    that is given twice would be free again when one of the two is done with."""

    def __init__(self, connection: Connection, life: int) -> None:
        self.connection, self.life = connection, life
        self.sent: set[int] = set()


class ShardShell:
    """An error ends it: whoever watches is told. Nothing of it acts once it is closed."""

    def __init__(self, setup: RaySetup, sent: SentOrigin, held: bool, here: ActorPlace) -> None:
        torch.set_num_threads(setup.run.threads)
        shard = sent.opening.shard
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._open = True
        self._error: BaseException | None = None
        self._clock = RunClock(setup.began_s)
        self._part = setup.run.sharding.slice(shard)
        self._disk = FolderDisk(setup.folder)
        if sent.opening.follows:
            wait_until_seen(self._disk, [log_name(shard, sent.opening.follows)])
        origin = sent.made(setup)
        replica = origin.replica
        began = replica.shard.version if sent.opening.follows else None
        self._fuse = Fuse(setup.faults, "shard", shard, began)
        self._process = ShardProcess(setup.run, self._disk, origin, held, self._fuse.burn)
        self._buffers = VersionBuffers(replica.shard.sent, setup.shared_memory)
        replica.place, replica.keep = self._buffers.place, self._buffers.keep
        replica.shard.use_places()
        self._reader = PayloadReader(shard)
        self._peers: dict[int, _Peer] = {}
        self._lives: dict[int, tuple[int, int]] = {}
        """The life and the process of each worker that has come in."""
        self._payloads: dict[int, SlotAddress] = {}
        """The slots of gradients that wait to be applied, by row."""
        self._bytes_in = 0
        self._here = here
        self._timers = Timers(self._rang)
        self._listener = Listener(self._heard, self._came, self._parted, setup.secret, here.host)
        self.place = here._replace(listener=self._listener.address)
        for token, due_s in self._process.timers():
            self._timers.add(max(0.0, due_s - self._clock()), token)

    def call(self, call: ShardCall) -> Any:
        """What the driver asks."""
        with self._lock:
            if self._error is not None:
                raise self._error
            answer: Any = None

            def do() -> Any:
                nonlocal answer
                answer, out = self._process.call(call, self._clock())
                return out

            self._do(do)
            if self._error is not None:
                raise self._error
            if isinstance(call, LeaveWorker):
                self._buffers.connect(call.worker, near=False)  # what it looked at last is free
                if call.worker in self._peers:
                    self._peers[call.worker].connection.close("the worker has left")
            return self._live(answer) if isinstance(call, AskShard) else answer

    def _live(self, status: ShardStatus) -> LiveShard:
        version, queue, received, dropped, delays, loss = status
        moved = (self._bytes_in, self._buffers.bytes_out)
        return LiveShard(version, queue, *moved, received, dropped, delays, loss)

    def watch(self, until_done: bool = False) -> None:
        """Wait for the end, or until its updates are made; fails with the error that ended it."""
        with self._ended:
            while self._open and not (until_done and self._process.done):
                self._ended.wait()
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                self._timers.close()
                self._listener.close()
                self._disk.close()
                self._buffers.close()
                self._ended.notify_all()

    # What workers say. On the listener's thread.

    def _came(self, connection: Connection, hello: list[Any]) -> None:
        worker, life, node, user, pid = hello
        with self._lock:
            old = self._peers.get(worker)
            if not self._open:
                connection.close("the run is over")
                return
            if old is not None and old.life > life:
                connection.close("this worker has been replaced")
                return
            if old is not None:
                old.connection.close("it has come in again")
            self._peers[worker] = _Peer(connection, life)
            known = self._lives.get(worker)
            if known is None or known[0] < life:  # claims of its earlier life are void
                if known is not None:
                    self._forget(known[1])
                self._lives[worker] = (life, pid)
                near = (node, user) == (self._here.node, self._here.user)
                self._buffers.connect(worker, near)

    def _forget(self, pid: int) -> None:
        """Of a worker's process that may have ended: what it pushed can still be applied, but there
        is nobody to give its memory back to."""
        self._reader.forget(pid)
        for row in [row for row, slot in self._payloads.items() if slot.pid == pid]:
            del self._payloads[row]

    def _parted(self, connection: Connection, reason: str) -> None:
        with self._lock:
            for worker, peer in list(self._peers.items()):
                if peer.connection is connection:
                    del self._peers[worker]

    def _heard(self, connection: Connection, header: list[Any], arrays: list[NDArray[Any]]) -> None:
        message, payload, buffers = decode_from_worker(header, arrays)
        with self._lock:
            peer = self._peers.get(message.worker)
            if not self._open or peer is None or peer.connection is not connection:
                return
            self._do(lambda: self._hear(message, payload, buffers))

    def _hear(
        self,
        message: FromWorker | Hello,
        payload: SlotOrArray | Encoded | None,
        buffers: Sequence[NDArray[Any]],
    ) -> Sequence[FromShard | TimerSet]:
        part, row, came_bytes = None, -1, 0
        if isinstance(message, FromWorker) and isinstance(message.body, PushHeader):
            row = message.body.row
            if isinstance(payload, tuple) and not isinstance(payload, SlotAddress):
                grad, came_bytes = self._process.decoded(message.body, payload)
            elif payload is not None:
                if not self._reader.there(payload):
                    return []  # its worker has died meanwhile, and will be replaced
                grad = self._reader.look(payload, self._part)
                came_bytes = grad.numel() * grad.itemsize
            if payload is not None:
                part = RowPart(grad, tuple(torch.from_numpy(array.copy()) for array in buffers))
        pending = self._process.replica.pending
        before = row in pending
        out = self._process.hear(message, part, self._clock())
        self._bytes_in += came_bytes if not before else 0
        if isinstance(payload, SlotAddress) and row not in self._payloads:
            if row in pending:
                self._payloads[row] = payload
            elif out:  # applied or dropped at once, or here before; not answered: to come again
                self._reader.done(payload)
        return out

    def _rang(self, token: int) -> None:
        with self._lock:
            if self._open:
                self._do(lambda: self._process.rang(token, self._clock()))

    # What follows.

    def _do(self, do: Callable[[], Sequence[FromShard | TimerSet]]) -> None:
        """Do it, and what follows from it; an error ends this life."""
        before = self._process.version
        try:
            for item in do():
                if isinstance(item, TimerSet):
                    self._timers.add(item.seconds, item.token)
                else:
                    self._say(item)
            self._free_slots()
        except Exception as error:  # ours, a policy's or a rule's: whoever watches is told
            self._error = error
            self.close()
            return
        if self._process.version != before:
            self._fuse.burn("after_release", self._process.version)
            if self._process.done:
                self._ended.notify_all()

    def _say(self, message: FromShard) -> None:
        peer = self._peers.get(message.worker)
        if peer is None or peer.life != message.life:
            return  # it asks again when it is there
        replica = self._process.replica
        releases = tuple(r for r in message.releases if r.sequence not in peer.sent)
        peer.sent.update(released.sequence for released in releases)
        payloads = [self._payload(released) for released in releases]
        message = message._replace(releases=releases, deviations=replica.deviations(releases))
        encoded = encode_from_shard(message, payloads)
        peer.connection.send(encoded.header, encoded.arrays)

    def _payload(self, released: Released) -> SlotOrArray | None:
        if not released.carries:
            return None
        worker, version, sent = released.worker, released.version, self._process.replica.sent
        sent[version] = self._buffers.share(worker, version, sent[version])
        return self._buffers.put(worker, version, sent[version])

    def _free_slots(self) -> None:
        """Of gradients that have been applied or dropped."""
        consumed = self._process.replica.consumed
        for row in consumed:
            payload = self._payloads.pop(row, None)
            if payload is not None:
                self._reader.done(payload)
        consumed.clear()
