"""Beginning a run's processes, and replacing those that die.

A shard is replaced in this order, which is what makes a process that was only thought dead
harmless: the others are told to accept no more views of it (`FenceShard`), its log is read, the new
process's log says how much of that counts, the others are told from where it goes on, and then the
workers are. A worker that has heard what does not count begins another life. Only then does the new
process hear workers (`OpenShard`): should it be replaced before all know where it began, then the
next one begins at the same place, and nobody misses what was between.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tardigrad.protocol.calls import (
    Ask,
    BeginWork,
    CompleteRow,
    Dead,
    EndProcess,
    FenceShard,
    HoldReleases,
    LeaveWorker,
    MakeShards,
    MakeWorkers,
    MeetShard,
    OpenShard,
    Process,
    Recover,
    ReinstateShard,
    ReplaceWorker,
    ShardCall,
    TakeEpoch,
    Tell,
    WaitForDeaths,
)
from tardigrad.protocol.channels import ChannelEnd
from tardigrad.protocol.messages import NO_ROW, PushHeader
from tardigrad.protocol.new_shards import LoggedShard, beginnings, reinstated
from tardigrad.protocol.run_processes import RunFailed, RunProcesses, Steps, Unreachable
from tardigrad.protocol.shard_session import ShardSession
from tardigrad.protocol.worker_session import WorkerStart


class HalfPushedRow(Protocol):
    """A gradient that some shards have and others have not."""

    @property
    def push(self) -> PushHeader: ...
    @property
    def missing(self) -> tuple[int, ...]: ...


class RecoveredShards(Protocol):
    """What the logs tell, as far as decisions need it."""

    @property
    def sessions(self) -> Sequence[ShardSession]: ...
    @property
    def lost(self) -> Sequence[int]:
        """Entries at each log's end that the other logs do not explain."""

    @property
    def logged(self) -> Sequence[LoggedShard]: ...

    @property
    def begun(self) -> bool:
        """Whether there are any logs."""

    def halves(self, worker: int) -> Sequence[HalfPushedRow]: ...
    def part(self, half: HalfPushedRow, shard: int) -> Any:
        """A shard's slice of a gradient that it has not."""

    def kept(self, worker: int) -> Any | None:
        """What its work keeps for itself, after the last gradient in any log; None: nothing."""

    def changes_made(self) -> tuple[int, set[int]]:
        """How many workers have joined, and who has left."""


@dataclass
class Replacing(RunProcesses):
    recoveries: list[str] = field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._working: set[int] = set()
        """Workers that were told to begin."""
        self._settled: dict[int, int] = {}
        """By worker, a life before which all that was pushed to some shards has come to all."""
        self._holding = False
        self._evaluated = -1
        self._snapshots: dict[int, dict[int, Any]] = {}

    @abstractmethod
    def _take_up(self, recovered: RecoveredShards) -> None:
        """Learn from the logs what is still to be done."""

    def _begin(self) -> Steps[None]:
        while True:
            epoch = yield TakeEpoch("begin")
            recovered: RecoveredShards = yield Recover()
            if any(recovered.lost):
                yield Tell(
                    f"the logs' ends do not fit together: a machine has lost some, or another "
                    f"driver's shards still write. {sum(recovered.lost)} entries that the others "
                    "do not explain are void, and are done again"
                )
            try:
                yield from self._begin_from(recovered, epoch)
                return
            except Unreachable:
                yield from self._tell_deaths()
                yield from self._end_all()

    def _end_all(self) -> Steps[None]:
        for process in {*self._everyone(), *self._dead}:
            yield EndProcess(process)
        self._dead.clear()
        self._made_again.clear()
        self._holding = False

    def _begin_from(self, recovered: RecoveredShards, epoch: int) -> Steps[None]:
        sessions = recovered.sessions
        members = sorted(sessions[0].channels)
        self._take_up(recovered)
        self._epochs = dict.fromkeys(range(self.shards), epoch)
        self._lives = {}
        self._working.clear()
        begins = [
            ReinstateShard(*reinstated(shard, logged, epoch))
            for shard, logged in enumerate(recovered.logged)
        ]
        self._evaluated = min([self._evaluated, *(logged.version for logged in recovered.logged)])
        self._snapshots.clear()
        yield from self._all(MakeShards(self._epochs, recovered, held=False))
        yield from self._tell_shards(lambda s: begins)
        # Another driver may have told some shards of a life, and not all.
        self._lives = {
            worker: 1 + max(session.lives[worker] for session in sessions) if recovered.begun else 0
            for worker in members
        }
        # Before shards hear anybody: processes of earlier lives may still be there, and what they
        # said to some shards only would not be in what was recovered.
        self._find_settled(recovered)
        ends = {}
        for worker in members if recovered.begun else ():
            ends[worker] = yield from self._announce(worker)
        yield from self._tell_shards(lambda s: [OpenShard(self.updates)])
        yield from self._all(MakeWorkers(members, self.patience.replace_s))
        heard, epochs = (0,) * self.shards, (epoch,) * self.shards
        for worker in members:
            if recovered.begun:
                yield from self._set_to_work(worker, ends[worker], recovered)
            else:
                yield from self._let_begin(WorkerStart(worker, 0, 0, worker, heard, epochs))

    def _find_settled(self, recovered: RecoveredShards) -> None:
        """By the logs alone, behind which no life before the newest can have pushed anything."""
        whole = (worker for worker in self._lives if not recovered.halves(worker))
        self._settled = {worker: self._lives[worker] for worker in whole}

    def _announce(self, worker: int) -> Steps[list[ChannelEnd]]:
        """Tell the shards of a worker's new life."""
        call = ReplaceWorker(worker, self._lives[worker], self._settled.get(worker, 0))
        ends: list[ChannelEnd] = yield from self._tell_shards(lambda s: [call])
        return ends

    def _set_to_work(
        self, worker: int, ends: list[ChannelEnd], recovered: RecoveredShards | None = None
    ) -> Steps[None]:
        """Let a worker go on in a dead one's place, once all shards have what some have got.

        What the dead one kept for itself is gone with it, but where all has been recovered."""
        if len({end.step for end in ends}) > 1:
            yield from self._complete_rows(worker, recovered)
            ends = yield from self._announce(worker)
        life, step = self._lives[worker], ends[0].step + 1
        self._settled[worker] = life
        row = worker if step == 0 and worker < self.workers else NO_ROW
        heard = tuple(end.heard for end in ends)
        if row != NO_ROW:
            heard = tuple(max(0, sequence) for sequence in heard)
        epochs = tuple(self._epochs[shard] for shard in range(self.shards))
        kept = None if recovered is None else recovered.kept(worker)
        start = WorkerStart(worker, life, step, row, heard, epochs, keeps=kept is not None)
        yield from self._let_begin(start, kept)

    def _complete_rows(self, worker: int, recovered: RecoveredShards | None = None) -> Steps[None]:
        """Give shards those of a dead worker's gradients that others have."""
        if recovered is None:
            recovered = yield Recover()
        for half in recovered.halves(worker):
            for shard in half.missing:
                call = CompleteRow(half.push, recovered.part(half, shard))
                yield from self._ask([(Process("shard", shard), call)])

    def _let_begin(self, start: WorkerStart, kept: Any | None = None) -> Steps[None]:
        yield from self._ask([(Process("worker", start.worker), BeginWork(start, kept))])
        self._working.add(start.worker)

    def _mend(self) -> Steps[None]:
        """Bring back the dead, shards first, because workers need all of them."""
        yield from self._tell_deaths()
        yield from self._revive_shards()
        yield from self._tell_deaths()  # of workers that were found dead meanwhile
        dead = [p for p in self._dead if p.kind == "worker"]
        for process in dead:
            if process.number not in self._lives:
                self._no_longer_dead(process)
        if to_replace := [p for p in dead if p.number in self._lives]:
            yield from self._replace_workers(to_replace)

    def _revive_shards(self) -> Steps[None]:
        while dead := sorted(p.number for p in self._dead if p.kind == "shard"):
            for shard in dead:
                yield EndProcess(Process("shard", shard))
            epochs = {}
            for shard in dead:
                epochs[shard] = yield TakeEpoch("replace")
            alive = [s for s in range(self.shards) if s not in dead]
            fences = [FenceShard(shard, epoch) for shard, epoch in epochs.items()]
            yield from self._fence(fences, alive)
            recovered: RecoveredShards = yield Recover()
            if any(recovered.lost[shard] for shard in alive) or any(
                recovered.logged[shard].version < self._evaluated for shard in dead
            ):
                yield from self._begin_again()
            yield from self._put_in_place(dead, epochs, recovered)

    def _fence(self, fences: Sequence[FenceShard], alive: Sequence[int]) -> Steps[None]:
        yield from self._tell_shards(lambda s: fences, alive)

    def _put_in_place(
        self, dead: Sequence[int], epochs: dict[int, int], recovered: RecoveredShards
    ) -> Steps[None]:
        self._epochs |= epochs
        self._find_settled(recovered)  # anew: a log's end may be lost, and what was completed
        for parts in self._snapshots.values():  # its new process tells all again
            for shard in dead:
                parts.pop(shard, None)
        yield from self._all(MakeShards(epochs, recovered, self._holding))
        calls = [
            ReinstateShard(*reinstated(shard, recovered.logged[shard], epoch))
            for shard, epoch in epochs.items()
        ]
        yield from self._tell_shards(lambda s: calls)
        for shard in dead:
            known = recovered.sessions[shard], recovered.logged[shard]
            yield from self._introduce(shard, beginnings(*known, epochs[shard]))
        yield from self._tell_shards(lambda s: [OpenShard(self.updates)], dead)
        for shard in dead:
            self._no_longer_dead(Process("shard", shard))
            self.recoveries.append(f"shard {shard}")

    def _introduce(self, shard: int, began: dict[int, Any]) -> Steps[None]:
        """Tell the workers of a shard's new process. Those that cannot go on begin another life."""
        calls = [
            (Process("worker", worker), MeetShard(shard, began[worker]))
            for worker in self._lives
            if worker in began and Process("worker", worker) not in self._dead
        ]
        outcomes = yield Ask(calls, self.patience.answer_s)
        for (process, _), outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, Dead):
                self._mourn([outcome])
            elif not outcome.value:
                why = f"it had heard of what shard {shard} did not live to log"
                self._mourn([Dead(process, why)])

    def _begin_again(self) -> Steps[None]:
        """What a shard had released was lost with its log's end, and others went on from there; or
        it was evaluated, and has to be again, of which the others hold no numbers any more."""
        yield Tell(
            "the end of a log was lost with a machine, and had consequences: all shards begin "
            "again from what the logs explain (a synced log does not lose its end)"
        )
        yield from self._end_all()
        yield from self._begin()
        raise Unreachable  # nothing of what was being done is left to do

    def _replace_workers(self, dead: Sequence[Process]) -> Steps[None]:
        """All are made at once: a start takes seconds, and a host takes many with it."""
        for process in dead:
            yield EndProcess(process)  # it may only have been out of reach
            self._lives[process.number] += 1
            self._working.discard(process.number)
            self._made_again.add(process)
        outcomes = yield MakeWorkers([process.number for process in dead], self.patience.replace_s)
        for process, outcome in zip(dead, outcomes, strict=True):
            if isinstance(outcome, Dead):
                yield from self._give_up(process.number, outcome.why)
            else:
                ends = yield from self._announce(process.number)
                yield from self._set_to_work(process.number, ends)
            self.recoveries.append(str(process))
            self._no_longer_dead(process)

    def _give_up(self, worker: int, why: str) -> Steps[None]:
        """There is no room for a replacement: the worker has left. All get what it pushed to some
        shards, because who goes on may wait until they are as far."""
        if len(self._lives) == 1:
            raise RunFailed(
                f"worker {worker}, the last one, died and cannot be replaced ({why}): add nodes "
                "and resume the run"
            )
        yield Tell(f"worker {worker} cannot be replaced ({why}): the run goes on without it")
        yield from self._announce(worker)  # so that nothing of it comes any more
        yield from self._complete_rows(worker)
        yield from self._let_leave(worker)
        self._gone(worker)
        yield from self._go_on()

    def _let_leave(self, worker: int) -> Steps[None]:
        """Of a worker that will say nothing more, of which all shards have all. One that dies
        meanwhile may have lost some of it with its log's end, and then gets it again."""
        yield from self._all_at_once(
            lambda s: LeaveWorker(worker), lambda: self._complete_leaver(worker)
        )

    def _complete_leaver(self, worker: int) -> Steps[None]:
        self._lives[worker] += 1
        yield from self._announce(worker)
        yield from self._complete_rows(worker)

    def _gone(self, worker: int) -> None:
        del self._lives[worker]
        self._no_longer_dead(Process("worker", worker))

    def _all_at_once(
        self, call: Callable[[int], ShardCall], first: Callable[[], Steps[None]] | None = None
    ) -> Steps[None]:
        """The same event at every shard, with no release in between: nobody sees it half done. A
        shard that dies meanwhile is brought back, and all are told again what they may know.

        first: what is done before, where a shard has died. The caller takes note that all know it,
        and then lets releases go on: whoever dies of those that are told so, it has happened."""
        self._holding, died = True, False
        while self._holding:
            died = died or any(process.kind == "shard" for process in self._dead)
            try:
                yield from self._revive_shards()
                yield from self._tell_shards(lambda s: [HoldReleases(True)])
                if died and first is not None:
                    yield from first()
                yield from self._tell_shards(lambda s: [call(s)])
                self._holding = False
            except Unreachable:
                if not self._holding:
                    raise
                died = True
                self._mourn((yield WaitForDeaths(self.patience.poll_s / 10)))
                yield from self._tell_deaths()

    def _go_on(self) -> Steps[None]:
        yield from self._tell_shards(lambda s: [HoldReleases(False)])
