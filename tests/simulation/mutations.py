"""The protocol with one of its safeguards taken out, so that the simulation is seen to find it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from tardigrad.protocol import calls, coordinator, shard_session
from tardigrad.protocol.admission import Admission, Fences
from tardigrad.protocol.calls import (
    CompleteRow,
    HoldReleases,
    OpenShard,
    ReplaceWorker,
    ShardCall,
)
from tardigrad.protocol.channels import WorkerChannel
from tardigrad.protocol.gates import WorkerGate
from tardigrad.protocol.messages import Completed, FromShard, FromWorker, PushHeader
from tardigrad.protocol.new_shards import LoggedShard
from tardigrad.protocol.shard_session import ShardSession
from tardigrad.protocol.worker_outputs import WorkerOutput
from tardigrad.protocol.worker_session import WorkerSession
from tardigrad.recording import merge, recovery, shard_logs
from tardigrad.recording.disk import Disk
from tardigrad.recording.epochs import Epochs
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.setup import RunSetup
from tardigrad.recording.shard_logs import ShardStory, log_name
from tardigrad.runtime.shard_process import LifeEnded, ShardProcess
from tests.simulation.mutations_of_rows import MUTATIONS_OF_ROWS, Mutation
from tests.simulation.simulated_disk import ReadOnlyDisk


def _record_after_output() -> AbstractContextManager[Any]:
    append = ShardProcess._append
    waiting: dict[int, bytes] = {}

    def late(self: ShardProcess, record: bytes) -> None:
        """Each record is written when the next one is due."""
        before = waiting.get(id(self))
        waiting[id(self)] = record
        if before is not None:
            append(self, before)

    return patch.object(ShardProcess, "_append", late)


def _duplicates_are_new() -> AbstractContextManager[Any]:
    admit = ShardSession.admit

    def always(self: ShardSession, message: FromWorker) -> Admission:
        channel = self.channels.get(message.worker)
        known = channel is not None and message.life == channel.life
        if known and channel is not None and message.number <= channel.number:
            return Admission.NEW
        return admit(self, message)

    return patch.object(ShardSession, "admit", always)


def _rows_are_completed_twice() -> AbstractContextManager[Any]:
    call = ShardProcess.call

    def again(self: ShardProcess, what: ShardCall, now_s: float) -> tuple[Any, list[Any]]:
        if isinstance(what, CompleteRow):
            self._arrive(what.header, what.gradient)
            return None, self._handle(Completed(what.header), now_s)
        return call(self, what, now_s)

    return patch.object(ShardProcess, "call", again)


def _earlier_lives_are_heard() -> AbstractContextManager[Any]:
    admit = ShardSession.admit

    def heard(self: ShardSession, message: FromWorker) -> Admission:
        channel = self.channels.get(message.worker)
        if channel is not None:
            message = message._replace(life=channel.life)
        return admit(self, message)

    return patch.object(ShardSession, "admit", heard)


def _every_worker_goes_on() -> AbstractContextManager[Any]:
    meet = WorkerSession.replaced_shard

    def good(self: WorkerSession, shard: int, began: Any) -> bool:
        channel = self._channels[shard]
        lowered = began._replace(
            life=self.life,
            sequence=max(began.sequence, channel.heard),
            number=max(began.number, channel.acked),
            version=max(began.version, channel.newest),
        )
        return meet(self, shard, lowered)

    return patch.object(WorkerSession, "replaced_shard", good)


def _releases_overtake() -> AbstractContextManager[Any]:
    hear = WorkerSession.hear

    def unordered(
        self: WorkerSession, message: FromShard, payloads: Sequence[Any], now_s: float
    ) -> list[WorkerOutput]:
        if message.releases:
            channel = self._channels[message.shard]
            channel.heard = max(channel.heard, message.releases[0].sequence - 1)
        return hear(self, message, payloads, now_s)

    return patch.object(WorkerSession, "hear", unordered)


def _cuts_ahead_of_logs() -> AbstractContextManager[Any]:
    save = ShardProcess._save

    def unsynced(self: ShardProcess, number: int) -> Any:
        with patch.object(ShardProcess, "_sync", lambda self, name: None):
            return save(self, number)

    def anywhere(self: ShardStory, epoch: int, size: int) -> int | None:
        return position(self, epoch, min(size, self.size)) if epoch == self.epoch else None

    position = ShardStory.position
    stack = ExitStack()
    stack.enter_context(patch.object(ShardProcess, "_save", unsynced))
    stack.enter_context(patch.object(ShardStory, "position", anywhere))
    return stack


def _short_writes_count() -> AbstractContextManager[Any]:
    append = ShardProcess._append

    def careless(self: ShardProcess, record: bytes) -> None:
        try:
            append(self, record)
        except LifeEnded:
            self._size += len(record)

    return patch.object(ShardProcess, "_append", careless)


def _predecessors_stay_unsynced() -> AbstractContextManager[Any]:
    sync = ShardProcess._sync

    def own_only(self: ShardProcess, name: str) -> None:
        if name == log_name(self._session.shard, self.epoch):
            sync(self, name)

    return patch.object(ShardProcess, "_sync", own_only)


def _nothing_is_held() -> AbstractContextManager[Any]:
    call = ShardProcess.call

    def free(self: ShardProcess, what: ShardCall, now_s: float) -> tuple[Any, list[Any]]:
        return (None, []) if isinstance(what, HoldReleases) else call(self, what, now_s)

    return patch.object(ShardProcess, "call", free)


class _Whole(bytes):
    """Cannot be cut short."""

    def __getitem__(self, at: Any) -> Any:
        whole = isinstance(at, slice) and at.start is None
        return self if whole else super().__getitem__(at)


class _WholeFiles(ReadOnlyDisk):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def read(self, name: str) -> bytes | None:
        data = self._disk.read(name)
        return None if data is None else _Whole(data)

    def names(self, prefix: str) -> list[str]:
        return self._disk.names(prefix)


def _void_tails_count() -> AbstractContextManager[Any]:
    read_story = shard_logs.read_story

    def read_all(disk: Disk, shard: int, known: int = 0) -> ShardStory:
        return read_story(_WholeFiles(disk), shard, known)

    return patch.object(recovery, "read_story", read_all)


def _open_at_once() -> AbstractContextManager[Any]:
    make = ShardProcess.__init__

    def opened(self: ShardProcess, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        self._open = True

    return patch.object(ShardProcess, "__init__", opened)


def _rows_are_not_checked() -> AbstractContextManager[Any]:
    class Unchecked(merge.LogMerger):
        def __init__(self, logs: Any, versions: Any, rows: int, *more: Any) -> None:
            super().__init__(logs, versions, 10**9, *more)

    return patch.object(merge, "LogMerger", Unchecked)


def _nothing_is_said_twice_to_a_new_life() -> AbstractContextManager[Any]:
    def replaced(channel: WorkerChannel, life: int) -> None:
        channel.life, channel.number = life, -1

    return patch.object(ShardSession, "_replaced", staticmethod(replaced))


def _old_lives_stay() -> AbstractContextManager[Any]:
    """A shard is not told of a worker's new life."""
    call = ShardProcess.call

    def deaf(self: ShardProcess, what: ShardCall, now_s: float) -> tuple[Any, list[Any]]:
        if isinstance(what, ReplaceWorker) and self._session.shard == 0:
            return self._session.end(what.worker), []
        return call(self, what, now_s)

    return patch.object(ShardProcess, "call", deaf)


def _every_life_is_settled() -> AbstractContextManager[Any]:
    """Also of a driver that does not know what the last one has completed."""
    call = ShardProcess.call

    def trusting(self: ShardProcess, what: ShardCall, now_s: float) -> tuple[Any, list[Any]]:
        if isinstance(what, ReplaceWorker):
            what = what._replace(settled=what.life - 1)
        return call(self, what, now_s)

    return patch.object(ShardProcess, "call", trusting)


def _unsynced_calls() -> AbstractContextManager[Any]:
    return patch.object(ShardProcess, "_handle_for_good", ShardProcess._handle)


def _halves_stay_halves() -> AbstractContextManager[Any]:
    return patch.object(RecoveredRun, "halves", lambda self, worker: [])


def _not_finite_is_answered() -> AbstractContextManager[Any]:
    pushed = ShardSession._pushed

    def answered(
        self: ShardSession, push: PushHeader, channel: WorkerChannel, now_s: float
    ) -> None:
        channel.answered_from = channel.sequence + 1
        pushed(self, push, channel, now_s)

    return patch.object(ShardSession, "_pushed", answered)


def _only_drop_unsent(self: ShardSession, worker: int, settled: int, now_s: float) -> None:
    self._drop_unsent(worker)


def _releases_are_not_asked_for() -> AbstractContextManager[Any]:
    """A worker says again what is not acknowledged, and nothing else."""
    awaits = WorkerSession.awaits

    def unacknowledged(self: WorkerSession, shard: int) -> tuple[int, int] | None:
        return None if self.status.quiet else awaits(self, shard)

    return patch.object(WorkerSession, "awaits", unacknowledged)


def _membership_stays_half_told() -> AbstractContextManager[Any]:
    return patch.object(RecoveredRun, "_complete_membership", lambda self: None)


def _what_is_added_explains() -> AbstractContextManager[Any]:
    return patch.object(
        recovery,
        "explained",
        lambda logs, sessions, same_version, written: merge.explained(logs, sessions, same_version),
    )


def _what_is_added_was_evaluated() -> AbstractContextManager[Any]:
    begin = RecoveredRun.__init__

    def begun(self: RecoveredRun, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.logged = [
            logged._replace(version=session.version)
            for logged, session in zip(self.logged, self.sessions, strict=True)
        ]

    return patch.object(RecoveredRun, "__init__", begun)


def _what_is_added_was_told() -> AbstractContextManager[Any]:
    begin = RecoveredRun.__init__

    def begun(self: RecoveredRun, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.logged = [
            LoggedShard.of(session)._replace(version=logged.version)
            for logged, session in zip(self.logged, self.sessions, strict=True)
        ]

    return patch.object(RecoveredRun, "__init__", begun)


def _what_was_never_opened_was_told() -> AbstractContextManager[Any]:
    read_story = shard_logs.read_story

    def all_told(disk: Disk, shard: int, known: int = 0) -> ShardStory:
        story = read_story(disk, shard, known)
        story.behind = None
        return story

    return patch.object(recovery, "read_story", all_told)


def _leavers_are_not_completed() -> AbstractContextManager[Any]:
    return patch.object(coordinator.Coordinator, "_complete_leaver", lambda self, worker: iter(()))


def _shard_1_is_not_extended() -> AbstractContextManager[Any]:
    call = ShardProcess.call

    def deaf(self: ShardProcess, what: ShardCall, now_s: float) -> tuple[Any, list[Any]]:
        if isinstance(what, OpenShard) and self._session.shard == 1:
            what = OpenShard(self._session.updates)
        return call(self, what, now_s)

    return patch.object(ShardProcess, "call", deaf)


MUTATIONS: dict[str, Mutation] = {
    "record before output": _record_after_output,
    "duplicates by number": _duplicates_are_new,
    "duplicates by step, of completed rows": _rows_are_completed_twice,
    "epochs: views of fenced processes": lambda: patch.object(
        Fences, "admit", lambda self, push: True
    ),
    "epochs: what a replaced process writes is void": _void_tails_count,
    "epochs: a driver that is deposed": lambda: patch.object(
        Epochs, "_check", lambda self, newest, about: None
    ),
    "lives of workers": _earlier_lives_are_heard,
    "lives: a shard is told of each": _old_lives_stay,
    "introduction: who heard too much begins anew": _every_worker_goes_on,
    "introduction before a new shard hears workers": _open_at_once,
    "rows: only those in shard 0's log": _rows_are_not_checked,
    "resending": lambda: patch.object(WorkerSession, "again", lambda self, shard: []),
    "resending: asking for releases": _releases_are_not_asked_for,
    "releases in order": _releases_overtake,
    "releases again for a new life": _nothing_is_said_twice_to_a_new_life,
    "window of releases": lambda: patch.object(shard_session, "WINDOW", 10**9),
    "cut not ahead of its log": _cuts_ahead_of_logs,
    "short write": _short_writes_count,
    "sync of the predecessor's log": _predecessors_stay_unsynced,
    "sync of what the driver tells": _unsynced_calls,
    "membership hold": _nothing_is_held,
    "membership that some logs have": _membership_stays_half_told,
    "membership: what is added to a log explains nothing": _what_is_added_explains,
    "membership: what is added to a log was not evaluated": _what_is_added_was_evaluated,
    "membership: what is added to a log was told to nobody": _what_is_added_was_told,
    "membership: what was added to a log that was not opened": _what_was_never_opened_was_told,
    "membership: a leaver's gradients come to all": _leavers_are_not_completed,
    "gradients that came to some shards": _halves_stay_halves,
    "gradients that are not finite": _not_finite_is_answered,
    "links: what workers hold back is in cuts": lambda: patch.object(
        coordinator,
        "FinishCut",
        lambda number, places, unsent, states: calls.FinishCut(number, places, (), states),
    ),
    "links: parameters first for a new life": lambda: patch.object(
        ShardSession, "_replaced_behind_gate", _only_drop_unsent
    ),
    "links: what is settled has come to all shards": _every_life_is_settled,
    "links: workers keep what they hold back": lambda: patch.object(
        WorkerGate, "unsent", lambda self: set()
    ),
    "extending: logs decide by the number they began with": lambda: patch.object(
        RunSetup, "begun_with", property(lambda self: self.updates)
    ),
    "extending: every shard is told": _shard_1_is_not_extended,
    "deaths are counted": lambda: patch.object(
        coordinator.Coordinator, "_tell_deaths", lambda self: iter(())
    ),
    **MUTATIONS_OF_ROWS,
}


@contextmanager
def without(safeguard: str) -> Iterator[None]:
    with MUTATIONS[safeguard]():
        yield
