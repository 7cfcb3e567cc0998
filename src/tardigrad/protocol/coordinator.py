"""The driver's decisions: beginning, cuts, joins and leaves, the end.

`Coordinator.run` is a generator: it yields what is to be done (`calls`) and is sent what came of
it. It takes no part in training, and what it knows can be learned again from the run's files, so a
killed driver is replaced by another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tardigrad.protocol.calls import (
    Ask,
    AskShard,
    AskWorker,
    Dead,
    EndProcess,
    FinishCut,
    FinishShard,
    HoldSteps,
    JoinWorker,
    MakeWorkers,
    NextCut,
    OpenShard,
    Process,
    SaveCut,
    Show,
    StopWork,
    TakeSnapshots,
    TakeState,
    TakeUnsent,
    Tell,
    WaitForDeaths,
)
from tardigrad.protocol.messages import NO_ROW
from tardigrad.protocol.replacing import RecoveredShards, Replacing
from tardigrad.protocol.run_processes import Steps, Unreachable
from tardigrad.protocol.worker_session import WorkerStart


@dataclass(frozen=True)
class MembershipChange:
    """Add a worker or remove one, once every shard has made so many updates."""

    at_update: int
    remove: int | None = None


@dataclass
class Coordinator(Replacing):
    cut_every: int = 0
    changes: Sequence[MembershipChange] = ()
    keeps_unsent: bool = False
    """Whether a link makes workers keep gradients, which belong to a cut;"""
    keeps_state: bool = False
    """and whether their work keeps a state, which does too."""
    watches: bool = False
    """Whether anybody wants to be shown how workers stand."""
    ends_early: bool = False
    """Set while it runs: end now, with the updates that are made."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._to_change = sorted(self.changes, key=lambda change: change.at_update)
        self._next_worker = self.workers
        self._unattended_s = 0.0
        self._seen = -1
        self._still_s, self._still_told_s = 0.0, self.patience.still_told_s
        self._next_cut = self.cut_every

    def _take_up(self, recovered: RecoveredShards) -> None:
        joined, left = recovered.changes_made()
        self._to_change = _still_to_make(self.changes, joined, left)
        self._next_worker = max([*recovered.sessions[0].lives, self.workers - 1]) + 1

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
                    return (yield from self._finish())
            except Unreachable:
                continue

    def _finish(self) -> Steps[list[Any]]:
        finish = FinishShard(closes=self.ends_early)
        return (yield from self._tell_shards(lambda s: [finish]))

    def _tick(self) -> Steps[bool]:
        """Do what is due; True at the end."""
        status = yield from self._tell_shards(lambda s: [AskShard()])
        version = min(answer[0] for answer in status)
        if version > self._version:
            self._version = version
            self._deaths.clear()
        if version != self._seen:  # which may be less: where a log's end was lost
            self._seen = version
            self._still_s, self._still_told_s = 0.0, self.patience.still_told_s
        self._still_s += self.patience.poll_s
        if self._still_s >= self._still_told_s:
            yield from self._tell_still()
        workers = {}
        self._unattended_s += self.patience.poll_s
        if self.watches or self._unattended_s >= self.patience.attend_s:
            self._unattended_s = 0.0
            answers = yield from self._ask([(who, AskWorker()) for who in self._at_work()])
            workers = dict(zip(self._lives, answers, strict=True))
        yield from self._show(status, workers)
        if version >= self.updates:
            return True
        if self.ends_early:
            yield from self._settle()
            return True
        if self._to_change and version >= self._to_change[0].at_update:
            yield from self._change(self._to_change[0])
            if self._dead:  # what they pushed to some shards only is not to be in a cut
                raise Unreachable
        if self.cut_every and version >= self._next_cut:
            yield from self._cut()
            self._next_cut = (version // self.cut_every + 1) * self.cut_every
        return False

    def _tell_still(self) -> Steps[None]:
        """A step may take long, and a policy may drop all that comes; or something is wrong."""
        still = f"no update for {self._still_s:.0f} s, since version {self._seen}"
        if busy := (yield from self._busy(self._at_work())):
            others = f" and {len(busy) - 1} others" if len(busy) > 1 else ""
            yield Tell(f"{still}; at work, or not heard by all shards: worker {busy[0]}{others}")
        else:
            yield Tell(
                f"{still}, and no worker computes: each waits for a shard. What has been made is "
                "kept if you interrupt the run"
            )
        self._still_told_s *= 2

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
            yield from self._until_quiet(
                "a cut (everybody waits with it; cut_every says how often)", self._at_work()
            )
            number = yield NextCut()
            places = yield from self._tell_shards(
                lambda s: [SaveCut(number)], limit_s=self.patience.save_s
            )
            unsent: list[Any] = []
            if self.keeps_unsent:
                unsent = yield from self._ask([(who, TakeUnsent()) for who in self._at_work()])
            states: list[Any] = []
            if self.keeps_state:
                states = yield from self._ask([(who, TakeState()) for who in self._at_work()])
            yield FinishCut(number, places, unsent, states)
        except Unreachable:  # another time, when everybody is there again
            here = [who for who in held if who not in self._dead]  # the others do not answer
            told = yield Ask([(who, HoldSteps(False)) for who in here], self.patience.answer_s)
            self._mourn(outcome for outcome in told if isinstance(outcome, Dead))
            raise
        yield from self._ask([(who, HoldSteps(False)) for who in held])

    def _settle(self) -> Steps[None]:
        """Before the updates are made: let workers start nothing, until all they said has arrived.

        Shards are opened first: an earlier try may have closed some before another died."""
        yield from self._tell_shards(lambda s: [OpenShard(self.updates)])
        yield from self._ask([(who, HoldSteps(True)) for who in self._at_work()])
        yield from self._until_quiet("the end", self._at_work())

    def _busy(self, workers: Sequence[Process]) -> Steps[list[int]]:
        """Those that compute, or have said something that a shard has not."""
        answers = yield from self._ask([(who, AskWorker()) for who in workers])
        return [
            who.number for who, status in zip(workers, answers, strict=True) if not status.quiet
        ]

    def _until_quiet(self, what: str, workers: Sequence[Process]) -> Steps[None]:
        """what: waits for them."""
        waited_s, told_s = 0.0, self.patience.quiet_told_s
        pause_s = self.patience.quiet_poll_s
        while True:
            busy = yield from self._busy(workers)
            if not busy:
                return
            if waited_s >= told_s:
                told_s += self.patience.quiet_told_s
                yield Tell(f"{what} has waited {waited_s:.0f} s for a step of worker {busy[0]}")
            self._mourn((yield WaitForDeaths(pause_s)))
            if self._dead:
                raise Unreachable
            waited_s += pause_s
            pause_s = min(2 * pause_s, self.patience.poll_s)

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
            yield Tell(f"worker {worker} stays: without it nobody would be left to train")
            return
        who = Process("worker", worker)
        yield from self._ask([(who, StopWork())])
        yield from self._until_quiet(f"the leave of worker {worker}", [who])
        yield from self._let_leave(worker)
        self._gone(worker)
        yield EndProcess(who)
        yield from self._go_on()


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
