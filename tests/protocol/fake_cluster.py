"""A cluster that answers a coordinator as a test says, and notes what was asked of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tardigrad as tg
from tardigrad.protocol.calls import (
    Answer,
    Ask,
    AskShard,
    AskWorker,
    CallOutcome,
    Dead,
    Effect,
    FinishShard,
    MakeShards,
    MakeWorkers,
    MeetShard,
    NextCut,
    Process,
    Recover,
    ReplaceWorker,
    Show,
    TakeEpoch,
    TakeSnapshots,
    Tell,
    WaitForDeaths,
)
from tardigrad.protocol.coordinator import Coordinator
from tardigrad.protocol.new_shards import LoggedShard
from tardigrad.protocol.shard_session import ShardSession

SHARDS, WORKERS, UPDATES = 2, 2, 10


class Status(NamedTuple):
    """As a shard's, of which the version counts, or a worker's, of which `quiet` does."""

    version: int = 0
    quiet: bool = True


class FakeSnapshot(NamedTuple):
    version: int


@dataclass
class Recovered:
    """Nothing has happened yet, or as much as a test says."""

    begun: bool = False
    lost: Sequence[int] = (0,) * SHARDS
    made: tuple[int, set[int]] = (0, set())
    pushed_to_some: Sequence[Any] = ()
    sessions: list[ShardSession] = field(
        default_factory=lambda: [
            ShardSession(tg.Async(), shard, SHARDS, range(WORKERS), UPDATES)
            for shard in range(SHARDS)
        ]
    )

    @property
    def logged(self) -> Sequence[LoggedShard]:
        return [LoggedShard.of(session) for session in self.sessions]

    def halves(self, worker: int) -> Sequence[Any]:
        return self.pushed_to_some

    def part(self, half: Any, shard: int) -> Any:
        raise AssertionError("nothing was pushed to some shards only")

    def kept(self, worker: int) -> Any | None:
        return None

    def changes_made(self) -> tuple[int, set[int]]:
        return self.made


@dataclass
class FakeCluster:
    """Every shard makes an update at every question how it is. `happens` says what goes wrong: it
    is given each call, and what it returns is the outcome, unless it is None."""

    coordinator: Coordinator
    happens: Callable[[Process, Any], CallOutcome | None] = lambda process, call: None
    recovered: Recovered = field(default_factory=Recovered)
    no_room: bool = False
    done: list[Effect] = field(default_factory=list)
    calls: list[tuple[Process, Any]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    shown: list[list[int]] = field(default_factory=list)
    version: int = 0
    epoch: int = 0

    def run(self, most: int = 2000) -> list[Any]:
        steps, value = self.coordinator.run(), None
        for _ in range(most):
            try:
                effect = steps.send(value)
            except StopIteration as stop:
                finals: list[Any] = stop.value
                return finals
            self.done.append(effect)
            value = self.carry_out(effect)
        raise AssertionError("it does not end")

    def carry_out(self, effect: Effect) -> Any:
        match effect:
            case Ask(calls, _):
                return [self.outcome(process, call) for process, call in calls]
            case TakeEpoch():
                self.epoch += 1
                return self.epoch
            case Recover():
                return self.recovered
            case MakeShards(epochs, _, _):
                return [self.outcome(Process("shard", shard), effect) for shard in epochs]
            case MakeWorkers(workers, _):
                if self.no_room:
                    return [Dead(Process("worker", worker), "no room") for worker in workers]
                return [self.outcome(Process("worker", worker), effect) for worker in workers]
            case WaitForDeaths():
                return []
            case NextCut():
                return 7
            case Tell(text):
                self.told.append(text)
            case Show(_, _, snapshots):
                self.shown += [[part.version for part in parts] for parts in snapshots]
        return None

    def outcome(self, process: Process, call: Any) -> CallOutcome:
        self.calls.append((process, call))
        outcome = self.happens(process, call)
        if outcome is not None:
            return outcome
        match call:
            case AskShard():
                self.version += process.number == 0
                return Answer(Status(min(self.version, UPDATES)))
            case ReplaceWorker(worker, _):
                return Answer(self.recovered.sessions[process.number].end(worker))
            case MeetShard():
                return Answer(True)
            case AskWorker():
                return Answer(Status())
            case TakeSnapshots():
                return Answer(())
            case FinishShard():
                return Answer("numbers")
        return Answer(None)

    def order(self, *kinds: type) -> list[str]:
        """What was done of these kinds, calls of several processes at once as one."""
        found: list[str] = []
        for effect in self.done:
            calls = [call for _, call in effect.calls] if isinstance(effect, Ask) else [effect]
            found += {type(call).__name__: 0 for call in calls if isinstance(call, kinds)}
        return found

    def asked(self, kind: type) -> list[Process]:
        return [process for process, call in self.calls if isinstance(call, kind)]


def made(**more: Any) -> Coordinator:
    return Coordinator(SHARDS, WORKERS, UPDATES, **more)


def once(process: Process, kind: type, outcome: CallOutcome) -> Callable[[Process, Any], Any]:
    """What happens at the first such call."""
    left = [outcome]
    return lambda who, call: left.pop() if left and (who, type(call)) == (process, kind) else None


SHARD, WORKER = Process("shard", 1), Process("worker", 1)
