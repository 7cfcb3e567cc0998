"""What a shard's process does, without threads, sockets and Ray: a shell feeds it.

Every event is decided, logged and only then carried out; nothing leaves before it is logged. Where
the log cannot be written, the process ends: what it holds is ahead of what others can know.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.engine.checkpoint import checkpoint_bytes
from tardigrad.links import Encoded, decode
from tardigrad.protocol.admission import Admission, Refused
from tardigrad.protocol.calls import (
    AskShard,
    CompleteRow,
    FenceShard,
    FinishShard,
    HoldReleases,
    JoinWorker,
    LeaveWorker,
    OpenShard,
    ReinstateShard,
    ReplaceWorker,
    SaveCut,
    ShardCall,
    TakeSnapshots,
)
from tardigrad.protocol.log import Opening, write_digest, write_entry, write_opened, write_opening
from tardigrad.protocol.messages import (
    Applied,
    Came,
    Completed,
    Decision,
    Dropped,
    Event,
    Extended,
    Fenced,
    FromShard,
    FromWorker,
    Hello,
    Joined,
    Left,
    PushHeader,
    Rang,
    Reinstated,
    Released,
    Replaced,
    RowGiven,
    TimerSet,
    WorkerInterrupted,
)
from tardigrad.recording.cuts import CutPlace, cut_name
from tardigrad.recording.disk import Disk
from tardigrad.recording.gradients import RowPart
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.replica import ShardReplica
from tardigrad.recording.setup import RunSetup
from tardigrad.recording.shard_logs import log_name


class LifeEnded(Exception):
    """The process cannot go on; another has to."""


class ShardStatus(NamedTuple):
    version: int
    queue: int
    received: dict[int, int]
    """Per worker: the last step that came."""
    dropped: dict[int, int]
    delays: dict[int, tuple[int, int]]
    """Per worker: gradients applied, and the sum of their delays."""
    loss: float
    """The mean batch loss of the last update; NaN before the first."""


class FinalShard(NamedTuple):
    theta: Tensor
    average: Tensor | None
    buffers: tuple[Tensor, ...]
    digest: str
    version: int


class ShardOrigin(NamedTuple):
    """What a shard's new process begins with."""

    epoch: int
    replica: ShardReplica
    opening: Opening
    added: Sequence[Any]


def shard_origin(recovered: RecoveredRun, shard: int, epoch: int) -> ShardOrigin:
    story = recovered.stories[shard]
    opening = Opening(shard, epoch, story.epoch, story.size)
    return ShardOrigin(epoch, recovered.replicas[shard], opening, recovered.added[shard])


ShardOut = FromShard | TimerSet


class ShardProcess:
    """Methods return what is to be sent to workers, and the timers to set."""

    def __init__(
        self,
        setup: RunSetup,
        disk: Disk,
        origin: ShardOrigin,
        held: bool = False,
        moment: Callable[[str, int], None] = lambda name, version: None,
    ) -> None:
        """moment: told of moments in which a test may want it to die."""
        self.setup = setup
        self.epoch = origin.epoch
        self.replica = origin.replica
        self._disk = disk
        self._session = origin.replica.session
        self._log = log_name(self._session.shard, self.epoch)
        self._size = 0
        self._held = held
        self._moment = moment
        self._open = False
        """Whether all know of this process. Before, it hears no worker and no timer."""
        self._rung: list[int] = []
        self._told: dict[int, int] = {}
        """The last release that was sent to each worker."""
        self._dropped: dict[int, int] = {}
        self._delays: dict[int, tuple[int, int]] = {}
        self._loss = math.nan
        # These are synced whatever `sync_log` says: what counts of the log before it, which may not
        # have been; and that it counts, because whatever else stands there is void for good.
        if origin.opening.follows:
            before = log_name(self._session.shard, origin.opening.follows)
            self._sync(before)
            if len(self._disk.read(before) or b"") < origin.opening.counted:
                raise LifeEnded(f"{before} has lost its end since it was read")
        self._tell_opened = origin.opening.follows > 0
        self._append(write_opening(origin.opening._replace(added=len(origin.added))))
        for entry in origin.added:
            self._append(write_entry(entry))
        self._sync(self._log)

    @property
    def version(self) -> int:
        return self.replica.shard.version

    @property
    def done(self) -> bool:
        return self.version >= self.setup.updates

    def timers(self) -> list[tuple[int, float]]:
        """(token, due at) of those that the process before it had set."""
        return self._session.timers

    # What workers say.

    def hear(
        self, message: FromWorker | Hello, part: RowPart | None, now_s: float
    ) -> list[ShardOut]:
        """A message; a finite gradient comes with its numbers."""
        if not self._open:
            return []
        if isinstance(message, Hello):
            channel = self._session.channels.get(message.worker)
            if channel is None or channel.life != message.life:
                return []
            return [self._answer(message.worker, message.heard)]
        admission = self._session.admit(message)
        if admission is Admission.VOID:
            return []
        if admission is Admission.AGAIN:
            return [self._answer(message.worker, message.heard)]
        if isinstance(message.body, PushHeader):
            self._arrive(message.body, part)
        return self._handle(Came(message), now_s, message.worker)

    def decoded(self, push: PushHeader, encoded: Encoded) -> tuple[Tensor, int]:
        """What a codec has made of a push, as the rule sees it, and the bytes that came."""
        codec, theta = self.setup.codec, self.replica.shard.theta
        came = sum(array.nbytes for array in encoded)
        try:
            holds = theta[:0].numpy(force=True).dtype
            seen = decode(codec, tuple(encoded), len(theta), holds)
        except (ValueError, IndexError, TypeError) as error:
            raise Refused(
                f"push refused: worker {push.worker}, step {push.step}, at shard "
                f"{self._session.shard}: {type(codec).__name__} has not encoded that ({error})"
            ) from error
        return torch.from_numpy(seen), came

    def _arrive(self, push: PushHeader, part: RowPart | None) -> None:
        if push.has_numbers:
            theta = self.replica.shard.theta
            if part is None or part.grad.shape != theta.shape or part.grad.dtype != theta.dtype:
                came = "nothing" if part is None else f"{part.grad.numel()} of {part.grad.dtype}"
                raise Refused(
                    f"push refused: worker {push.worker}, step {push.step}, at shard "
                    f"{self._session.shard}: it sent {came}, this shard holds {theta.numel()} "
                    f"numbers of {theta.dtype}"
                )
            self.replica.arrive(push, part.grad, part.buffers)
        else:
            self.replica.arrive(push, None, ())

    def rang(self, token: int, now_s: float) -> list[ShardOut]:
        if not self._open:
            self._rung.append(token)
            return []
        return self._handle(Rang(token), now_s)

    # What the driver asks.

    def call(self, call: ShardCall, now_s: float) -> tuple[Any, list[ShardOut]]:
        """The answer, and what follows for workers."""
        session = self._session
        match call:
            case ReplaceWorker(worker, life):
                if worker not in session.channels:  # it has left, which not all have heard
                    return None, []
                if life > session.channels[worker].life:
                    self._handle_for_good(Replaced(*call), now_s)
                    self._told.pop(worker, None)
                return session.end(worker), []
            case CompleteRow(header, part):
                channel = session.channels.get(header.worker)
                if channel is not None and header.step == channel.step + 1:
                    self._arrive(header, part)
                    return None, self._handle_for_good(Completed(header), now_s)
            case JoinWorker(worker, life):
                if worker not in session.lives:
                    return None, self._handle_for_good(Joined(worker, life), now_s)
            case LeaveWorker(worker):
                if worker in session.channels:
                    return None, self._handle_for_good(Left(worker), now_s)
            case FenceShard(shard, epoch):
                self._handle_for_good(Fenced(shard, epoch), now_s)
            case ReinstateShard():
                self._handle_for_good(Reinstated(*call), now_s)
            case OpenShard(updates):
                return None, self._open_up(updates, now_s)
            case HoldReleases(held):
                self._held = held
                return None, [] if held else [self._answer(w) for w in session.channels]
            case SaveCut(number):
                return self._save(number), []
            case TakeSnapshots(done, known):
                kept = [one for one in self.replica.snapshots if one.version > done]
                self.replica.snapshots = kept
                return tuple(one for one in kept if one.version > known), []
            case FinishShard(closes):
                self._open = self._open and not closes
                self._sync(self._log)  # what the driver takes for the end must not be lost again
                return self._final(), []
            case AskShard():
                return self._status(), []
        return None, []

    def _open_up(self, updates: int, now_s: float) -> list[ShardOut]:
        """Workers begin only when every shard is open, so nothing that follows from more updates
        can reach a shard that has not logged them."""
        out: list[ShardOut] = []
        if updates > self._session.updates:
            out += self._handle_for_good(Extended(updates), now_s)
        if self._tell_opened:
            self._tell_opened = False
            self._append(write_opened())
        self._open, rung, self._rung = True, self._rung, []
        for token in rung:
            out += self._handle(Rang(token), now_s)
        # Workers have come in before it was open, and their questions were not heard.
        return [*out, *(self._answer(worker) for worker in self._session.channels)]

    def _save(self, number: int) -> CutPlace:
        self._sync(self._log)
        tensors, facts = self.replica.tensors(), self.replica.facts()
        name = cut_name(number, self._session.shard, self.epoch)
        try:
            self._disk.replace(name, checkpoint_bytes(tensors, facts))
        except OSError as error:
            raise LifeEnded(f"its part of a cut cannot be written: {error}") from error
        return CutPlace(self.epoch, self._size)

    def _status(self) -> ShardStatus:
        received = {worker: c.step for worker, c in self._session.channels.items()}
        queue = len(self.replica.pending)
        counted = (dict(self._dropped), dict(self._delays))
        return ShardStatus(self.version, queue, received, *counted, self._loss)

    def _final(self) -> FinalShard:
        shard = self.replica.shard
        average = shard.state.average[0] if shard.state.average else None
        return FinalShard(
            shard.theta, average, self.replica.buffers, self.replica.digest(), self.version
        )

    # How an event is handled.

    def _handle_for_good(self, event: Event, now_s: float) -> list[ShardOut]:
        """What the driver has told is synced whatever `sync_log` says: it happens seldom, and the
        driver goes on from there, even if this shard loses its log's end."""
        out = self._handle(event, now_s)
        self._sync(self._log)
        return out

    def _handle(self, event: Event, now_s: float, sender: int | None = None) -> list[ShardOut]:
        before = self.version
        decided = self.replica.decide(event, now_s)
        made = self._session.version
        if made != before:
            self._moment("before_log", made)
        entry = self.replica.carry_out(decided)
        self._append(write_entry(entry))
        if made != before:
            self._moment("before_release", made)
        decisions = entry.decided
        self._count(decisions, decided.headers, before)
        every = self.setup.digest_every
        if every and self.version != before and self.version % every == 0:
            self._append(write_digest(self.version, self.replica.digest()))
        out: list[ShardOut] = [one for one in decisions if isinstance(one, TimerSet)]
        told = Released | RowGiven | WorkerInterrupted
        spoken_to = {d.worker for d in decisions if isinstance(d, told)}
        if sender is not None:
            spoken_to.add(sender)
        return out + [self._answer(w) for w in sorted(spoken_to) if w in self._session.channels]

    def _answer(self, worker: int, heard: int | None = None) -> FromShard:
        """What the worker was not told yet, or has not `heard`."""
        after = self._told.get(worker, -1) if heard is None else heard
        if self._held:
            return self._session.answer(self.epoch, worker, None)
        answer = self._session.answer(self.epoch, worker, after)
        if answer.releases:
            self._told[worker] = max(self._told.get(worker, -1), answer.releases[-1].sequence)
        deviations = self.replica.deviations(answer.releases)
        return answer._replace(deviations=deviations) if deviations else answer

    def _append(self, record: bytes) -> None:
        try:
            self._disk.append(self._log, record)
        except OSError as error:
            raise LifeEnded(f"its log cannot be written: {error}") from error
        if self.setup.sync_log:
            self._sync(self._log)
        self._size += len(record)

    def _sync(self, name: str) -> None:
        try:
            self._disk.sync(name)
        except OSError as error:
            raise LifeEnded(f"{name} cannot be synced: {error}") from error

    def _count(self, decisions: Sequence[Decision], headers: Any, version: int) -> None:
        """For whoever watches."""
        for item in decisions:
            if isinstance(item, Applied):
                for row in item.rows:
                    push = headers[row]
                    applied, late = self._delays.get(push.worker, (0, 0))
                    delay = version - push.read[self._session.shard]
                    self._delays[push.worker] = (applied + 1, late + delay)
                version += 1
                losses = [headers[row].loss for row in item.rows]
                self._loss = sum(losses) / len(losses)
            elif isinstance(item, Dropped) and item.row in headers:
                worker = headers[item.row].worker
                self._dropped[worker] = self._dropped.get(worker, 0) + 1
