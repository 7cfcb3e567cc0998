"""The driver's decisions: beginning, cuts, replacing the dead, joins and leaves, the end.

`Coordinator.run` is a generator: it yields what is to be done (`calls`) and is sent what came of
it. It takes no part in training, and what it knows can be learned again from the run's files, so a
killed driver is replaced by another one.

A shard is replaced in this order, which is what makes a process that was only thought dead
harmless: the others are told to accept no more views of it (`FenceShard`), its log is read, the new
process's log says how much of that counts, the others are told from where it goes on, and then the
workers are. A worker that has heard what does not count begins another life. Only then does the new
process hear workers (`OpenShard`): should it be replaced before all know where it began, then the
next one begins at the same place, and nobody misses what was between.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tardigrad.protocol.calls import (
    Answer,
    Ask,
    AskShard,
    AskWorker,
    BeginWork,
    CallOutcome,
    CompleteRow,
    Dead,
    Effect,
    EndProcess,
    FenceShard,
    FinishCut,
    FinishShard,
    HoldReleases,
    HoldSteps,
    JoinWorker,
    LeaveWorker,
    MakeShards,
    MakeWorkers,
    MeetShard,
    NextCut,
    OpenShard,
    Process,
    Recover,
    ReinstateShard,
    ReplaceWorker,
    SaveCut,
    ShardCall,
    Show,
    StopWork,
    TakeEpoch,
    TakeSnapshots,
    TakeUnsent,
    Tell,
    WaitForDeaths,
    WorkerCall,
)
from tardigrad.protocol.messages import NO_ROW, PushHeader
from tardigrad.protocol.shard_session import ChannelEnd, ShardSession
from tardigrad.protocol.worker_session import WorkerStart

T = TypeVar("T")
Steps = Generator[Effect, Any, T]


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
    def begun(self) -> bool:
        """Whether there are any logs."""

    def halves(self, worker: int) -> Sequence[HalfPushedRow]: ...
    def part(self, half: HalfPushedRow, shard: int) -> Any:
        """A shard's slice of a gradient that it has not."""

    def changes_made(self) -> tuple[int, set[int]]:
        """How many workers have joined, and who has left."""


@dataclass(frozen=True)
class MembershipChange:
    """Add a worker or remove one, once every shard has made so many updates."""

    at_update: int
    remove: int | None = None


@dataclass(frozen=True)
class Patience:
    """Seconds. How long things may take before something is done about it."""

    poll_s: float = 0.25
    answer_s: float = 45.0
    """A process that does not answer for so long is taken for dead. Steps may take longer: they do
    not keep a process from answering."""
    attend_s: float = 10.0
    """Between questions to all workers how they are. Nobody would miss one that is stopped, but
    those that wait for it."""
    save_s: float = 600.0
    replace_s: float = 60.0
    """A dead worker's replacement; the run goes on without it."""
    quiet_poll_s: float = 0.005
    quiet_told_s: float = 60.0
    """How often it is told that a cut still waits for a worker's step."""
    deaths: int = 5
    """How often a process may die without the run having come any further."""


class RunFailed(ValueError):
    """A run that cannot go on; it can be resumed once the reason is gone."""


class _Unreachable(Exception):
    """Somebody died meanwhile. Who is in `_dead`, and what was being done is done again."""


@dataclass
class Coordinator:
    shards: int
    workers: int
    """How many there are at first."""
    updates: int
    cut_every: int = 0
    changes: Sequence[MembershipChange] = ()
    keeps_unsent: bool = False
    """Whether a link makes workers keep gradients, which belong to a cut."""
    watches: bool = False
    """Whether anybody wants to be shown how workers stand."""
    patience: Patience = field(default_factory=Patience)
    recoveries: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._lives: dict[int, int] = {}
        """Of the workers at work."""
        self._working: set[int] = set()
        """Those that were told to begin."""
        self._dead: dict[Process, str] = {}
        self._made_again: set[Process] = set()
        """Those of the dead that were made again and are not at work yet: they may die again."""
        self._deaths: Counter[Process] = Counter()
        self._holding = False
        self._to_change = sorted(self.changes, key=lambda change: change.at_update)
        self._next_worker = self.workers
        self._version = 0
        self._unattended_s = 0.0
        self._next_cut = self.cut_every
        self._evaluated = -1
        self._snapshots: dict[int, dict[int, Any]] = {}

    def run(self) -> Steps[list[Any]]:
        """Until every shard has made its updates; their numbers at the end."""
        yield from self._begin()
        while True:
            found = yield WaitForDeaths(self.patience.poll_s)
            self._mourn(found)
            idle = [w for w in self._lives if w not in self._working]
            self._mourn(Dead(Process("worker", w), "it was not told to begin") for w in idle)
            try:
                if self._dead:
                    yield from self._mend()
                elif (yield from self._tick()):
                    return (yield from self._tell_shards(lambda s: [FinishShard()]))
            except _Unreachable:
                continue

    # Beginning.

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
            except _Unreachable:
                yield from self._tell_deaths()
                yield from self._end_all()

    def _end_all(self) -> Steps[None]:
        for process in {*self._everyone(), *self._dead}:
            yield EndProcess(process)
        self._dead.clear()
        self._made_again.clear()
        self._holding = False

    def _everyone(self) -> list[Process]:
        return [*(Process("shard", s) for s in self._epochs), *self._at_work()]

    def _at_work(self) -> list[Process]:
        return [Process("worker", worker) for worker in self._lives]

    def _begin_from(self, recovered: RecoveredShards, epoch: int) -> Steps[None]:
        sessions = recovered.sessions
        members = sorted(sessions[0].channels)
        lives = sessions[0].lives
        joined, left = recovered.changes_made()
        self._to_change = _still_to_make(self.changes, joined, left)
        self._next_worker = max([*lives, self.workers - 1]) + 1
        self._epochs = dict.fromkeys(range(self.shards), epoch)
        self._lives = {}
        self._working.clear()
        begins = [ReinstateShard(s, epoch, *_begin_of(sessions[s])) for s in range(self.shards)]
        self._evaluated = min(self._evaluated, *(session.version for session in sessions))
        self._snapshots.clear()
        yield from self._all(MakeShards(self._epochs, recovered, held=False))
        yield from self._tell_shards(lambda s: begins)
        yield from self._tell_shards(lambda s: [OpenShard()])
        # Another driver may have told some shards of a life, and not all.
        self._lives = {
            worker: 1 + max(session.lives[worker] for session in sessions) if recovered.begun else 0
            for worker in members
        }
        yield from self._all(MakeWorkers(members, self.patience.replace_s))
        if recovered.begun:
            ends = {}
            for worker in members:
                ends[worker] = yield from self._announce(worker)
            for worker in members:
                yield from self._set_to_work(worker, ends[worker], recovered)
        else:
            heard, epochs = (0,) * self.shards, (epoch,) * self.shards
            for worker in members:
                yield from self._let_begin(WorkerStart(worker, 0, 0, worker, heard, epochs))

    def _announce(self, worker: int) -> Steps[list[ChannelEnd]]:
        """Tell the shards of a worker's new life."""
        call = ReplaceWorker(worker, self._lives[worker])
        ends: list[ChannelEnd] = yield from self._tell_shards(lambda s: [call])
        return ends

    def _set_to_work(
        self, worker: int, ends: list[ChannelEnd], recovered: RecoveredShards | None = None
    ) -> Steps[None]:
        """Let a worker go on in a dead one's place, once all shards have what some have got."""
        if len({end.step for end in ends}) > 1:
            if recovered is None:
                recovered = yield Recover()
            for half in recovered.halves(worker):
                for shard in half.missing:
                    call = CompleteRow(half.push, recovered.part(half, shard))
                    yield from self._ask([(Process("shard", shard), call)])
            ends = yield from self._announce(worker)
        life, step = self._lives[worker], ends[0].step + 1
        row = worker if step == 0 and worker < self.workers else NO_ROW
        heard = tuple(end.heard for end in ends)
        if row != NO_ROW:
            heard = tuple(max(0, sequence) for sequence in heard)
        epochs = tuple(self._epochs[shard] for shard in range(self.shards))
        yield from self._let_begin(WorkerStart(worker, life, step, row, heard, epochs))

    def _let_begin(self, start: WorkerStart) -> Steps[None]:
        yield from self._ask([(Process("worker", start.worker), BeginWork(start))])
        self._working.add(start.worker)

    # Going on.

    def _tick(self) -> Steps[bool]:
        """Do what is due; True at the end."""
        status = yield from self._tell_shards(lambda s: [AskShard()])
        version = min(answer[0] for answer in status)
        if version > self._version:
            self._version = version
            self._deaths.clear()
        workers = {}
        self._unattended_s += self.patience.poll_s
        if self.watches or self._unattended_s >= self.patience.attend_s:
            self._unattended_s = 0.0
            answers = yield from self._ask([(who, AskWorker()) for who in self._at_work()])
            workers = dict(zip(self._lives, answers, strict=True))
        yield from self._show(status, workers)
        if version >= self.updates:
            return True
        if self._to_change and version >= self._to_change[0].at_update:
            yield from self._change(self._to_change[0])
        if self.cut_every and version >= self._next_cut:
            yield from self._cut()
            self._next_cut = (version // self.cut_every + 1) * self.cut_every
        return False

    def _show(self, status: Sequence[Any], workers: dict[int, Any]) -> Steps[None]:
        """Hand over versions that all shards have made."""
        known = [
            max([v for v, p in self._snapshots.items() if s in p], default=self._evaluated)
            for s in range(self.shards)
        ]
        found = yield from self._tell_shards(lambda s: [TakeSnapshots(self._evaluated, known[s])])
        for shard, snapshots in enumerate(found):
            for one in snapshots:
                if one.version > self._evaluated:
                    self._snapshots.setdefault(one.version, {})[shard] = one
        whole = [v for v, parts in sorted(self._snapshots.items()) if len(parts) == self.shards]
        each = [[parts[s] for s in range(self.shards)] for parts in map(self._snapshots.pop, whole)]
        yield Show(status, workers, each)
        self._evaluated = max([self._evaluated, *whole])

    def _cut(self) -> Steps[None]:
        """Let workers start nothing until all they said has arrived, and save all shards."""
        held = self._at_work()
        try:
            yield from self._ask([(who, HoldSteps(True)) for who in held])
            yield from self._until_quiet()
            number = yield NextCut()
            places = yield from self._tell_shards(
                lambda s: [SaveCut(number)], limit_s=self.patience.save_s
            )
            unsent: list[Any] = []
            if self.keeps_unsent:
                unsent = yield from self._ask([(who, TakeUnsent()) for who in self._at_work()])
            yield FinishCut(number, places, unsent)
        except _Unreachable:  # another time, when everybody is there again
            told = yield Ask([(who, HoldSteps(False)) for who in held], self.patience.answer_s)
            self._mourn(outcome for outcome in told if isinstance(outcome, Dead))
            raise
        yield from self._ask([(who, HoldSteps(False)) for who in held])

    def _until_quiet(self) -> Steps[None]:
        waited_s, told_s = 0.0, self.patience.quiet_told_s
        pause_s = self.patience.quiet_poll_s
        while True:
            answers = yield from self._ask([(who, AskWorker()) for who in self._at_work()])
            busy = [w for w, status in zip(self._lives, answers, strict=True) if not status.quiet]
            if not busy:
                return
            if waited_s >= told_s:
                told_s += self.patience.quiet_told_s
                yield Tell(
                    f"a cut has waited {waited_s:.0f} s for a step of worker {busy[0]}; everybody "
                    "waits with it: cut less often (cut_every), or not at all"
                )
            self._mourn((yield WaitForDeaths(pause_s)))
            if self._dead:
                raise _Unreachable
            waited_s += pause_s
            pause_s = min(2 * pause_s, self.patience.poll_s)

    # The dead.

    def _mourn(self, found: Iterable[Dead]) -> None:
        """Take note of the dead, each once."""
        here = set(self._everyone())
        for process, why in found:
            if process in here and (process not in self._dead or process in self._made_again):
                self._made_again.discard(process)
                self._dead[process] = why
                self._deaths[process] += 1

    def _no_longer_dead(self, process: Process) -> None:
        self._dead.pop(process, None)
        self._made_again.discard(process)

    def _mend(self) -> Steps[None]:
        """Bring back the dead, shards first, because workers need all of them."""
        yield from self._tell_deaths()
        yield from self._revive_shards()
        for process in [p for p in self._dead if p.kind == "worker"]:
            if process.number in self._lives:
                yield EndProcess(process)  # it may only have been out of reach
                yield from self._replace_worker(process.number)
                self.recoveries.append(str(process))
            self._no_longer_dead(process)

    def _tell_deaths(self) -> Steps[None]:
        for process, why in self._dead.items():
            yield Tell(f"{process} died ({why}), and is brought back")
            if self._deaths[process] > self.patience.deaths:
                raise RunFailed(
                    f"{process} died {self._deaths[process]} times without the run having come any "
                    f"further than version {self._version}; the last time: {why}"
                )

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
                recovered.sessions[shard].version < self._evaluated for shard in dead
            ):
                yield from self._begin_again()
            yield from self._put_in_place(dead, epochs, recovered)

    def _fence(self, fences: Sequence[FenceShard], alive: Sequence[int]) -> Steps[None]:
        yield from self._tell_shards(lambda s: fences, alive)

    def _put_in_place(
        self, dead: Sequence[int], epochs: dict[int, int], recovered: RecoveredShards
    ) -> Steps[None]:
        self._epochs |= epochs
        for parts in self._snapshots.values():  # its new process tells all again
            for shard in dead:
                parts.pop(shard, None)
        yield from self._all(MakeShards(epochs, recovered, self._holding))
        calls = [
            ReinstateShard(shard, epoch, *_begin_of(recovered.sessions[shard]))
            for shard, epoch in epochs.items()
        ]
        yield from self._tell_shards(lambda s: calls)
        for shard in dead:
            yield from self._introduce(shard, recovered.sessions[shard].beginning(epochs[shard]))
        yield from self._tell_shards(lambda s: [OpenShard()], dead)
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
        raise _Unreachable  # nothing of what was being done is left to do

    def _replace_worker(self, worker: int) -> Steps[None]:
        self._lives[worker] += 1
        self._working.discard(worker)
        self._made_again.add(Process("worker", worker))
        (outcome,) = yield MakeWorkers([worker], self.patience.replace_s)
        if isinstance(outcome, Dead):
            yield from self._give_up(worker, outcome.why)
            return
        ends = yield from self._announce(worker)
        yield from self._set_to_work(worker, ends)

    def _give_up(self, worker: int, why: str) -> Steps[None]:
        """There is no room for a replacement: the worker has left, and what it had pushed to some
        shards only is dropped at the others, and counted."""
        if len(self._lives) == 1:
            raise RunFailed(
                f"worker {worker}, the last one, died and cannot be replaced ({why}): add nodes "
                "and resume the run"
            )
        yield Tell(f"worker {worker} cannot be replaced ({why}): the run goes on without it")
        yield from self._announce(worker)  # so that nothing of it comes any more
        recovered: RecoveredShards = yield Recover()
        lost: list[list[PushHeader]] = [[] for _ in range(self.shards)]
        for half in recovered.halves(worker):
            for shard in half.missing:
                lost[shard].append(half.push)
        yield from self._all_at_once(lambda s: LeaveWorker(worker, tuple(lost[s])))
        self._gone(worker)
        yield from self._go_on()

    # Joining and leaving.

    def _change(self, change: MembershipChange) -> Steps[None]:
        if change.remove is not None:
            if change.remove in self._lives:  # else it has died, and was not replaced
                yield from self._remove_worker(change.remove)
            self._to_change.remove(change)
            return
        worker = self._next_worker
        (outcome,) = yield MakeWorkers([worker], self.patience.replace_s)
        self._to_change.remove(change)
        if isinstance(outcome, Dead):
            yield Tell(f"worker {worker} cannot join: {outcome.why}")
            return
        self._next_worker += 1
        self._lives[worker] = 0
        yield from self._all_at_once(lambda s: JoinWorker(worker, 0))
        yield from self._go_on()
        heard = (-1,) * self.shards
        epochs = tuple(self._epochs[shard] for shard in range(self.shards))
        yield from self._let_begin(WorkerStart(worker, 0, 0, NO_ROW, heard, epochs))

    def _remove_worker(self, worker: int) -> Steps[None]:
        """Let a worker finish and push its gradient, then go for good."""
        if len(self._lives) == 1:
            raise RunFailed(f"worker {worker} is the last one: nobody would be left to train")
        who = Process("worker", worker)
        yield from self._ask([(who, StopWork())])
        while not (yield from self._ask([(who, AskWorker())]))[0].quiet:
            self._mourn((yield WaitForDeaths(self.patience.quiet_poll_s)))
            if self._dead:
                raise _Unreachable
        yield from self._all_at_once(lambda s: LeaveWorker(worker))
        self._gone(worker)
        yield EndProcess(who)
        yield from self._go_on()

    def _gone(self, worker: int) -> None:
        del self._lives[worker]
        self._no_longer_dead(Process("worker", worker))

    def _all_at_once(self, call: Callable[[int], ShardCall]) -> Steps[None]:
        """The same event at every shard, with no release in between: nobody sees it half done. A
        shard that dies meanwhile is brought back, and all are told again what they may know.

        The caller takes note that all know it, and then lets releases go on: whoever dies of those
        that are told so, it has happened."""
        self._holding = True
        while self._holding:
            try:
                yield from self._revive_shards()
                yield from self._tell_shards(lambda s: [HoldReleases(True)])
                yield from self._tell_shards(lambda s: [call(s)])
                self._holding = False
            except _Unreachable:
                if not self._holding:
                    raise
                self._mourn((yield WaitForDeaths(self.patience.poll_s / 10)))
                yield from self._tell_deaths()

    def _go_on(self) -> Steps[None]:
        yield from self._tell_shards(lambda s: [HoldReleases(False)])

    # Asking.

    def _tell_shards(
        self,
        calls: Callable[[int], Sequence[ShardCall]],
        shards: Iterable[int] | None = None,
        limit_s: float | None = None,
    ) -> Steps[list[Any]]:
        """Each shard's calls, one after the other; the answers to the last ones."""
        told = list(range(self.shards) if shards is None else shards)
        each = [list(calls(shard)) for shard in told]
        answers: list[Any] = []
        for turn in zip(*each, strict=True):
            asked = [(Process("shard", s), call) for s, call in zip(told, turn, strict=True)]
            answers = yield from self._ask(asked, limit_s)
        return answers

    def _ask(
        self,
        calls: Sequence[tuple[Process, ShardCall | WorkerCall]],
        limit_s: float | None = None,
    ) -> Steps[list[Any]]:
        outcomes = yield Ask(calls, limit_s or self.patience.answer_s)
        return self._answers(outcomes)

    def _all(self, effect: MakeShards | MakeWorkers) -> Steps[None]:
        if isinstance(effect, MakeShards):
            self._made_again.update(Process("shard", shard) for shard in effect.epochs)
        outcomes = yield effect
        self._answers(outcomes)

    def _answers(self, outcomes: Sequence[CallOutcome]) -> list[Any]:
        dead = [outcome for outcome in outcomes if isinstance(outcome, Dead)]
        if dead:
            self._mourn(dead)
            raise _Unreachable
        return [outcome.value for outcome in outcomes if isinstance(outcome, Answer)]


def _begin_of(session: ShardSession) -> tuple[int, int]:
    return session.version, session.rows_given


def _still_to_make(
    changes: Sequence[MembershipChange], joined: int, left: set[int]
) -> list[MembershipChange]:
    """Those that an earlier driver has not made."""
    to_make = []
    for change in sorted(changes, key=lambda change: change.at_update):
        if change.remove is None and joined:
            joined -= 1
        elif change.remove is None or change.remove not in left:
            to_make.append(change)
    return to_make
