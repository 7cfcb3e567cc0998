"""What a driver knows of a run's processes, and how it asks them: who is there, who has died."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tardigrad.protocol.calls import (
    Answer,
    Ask,
    CallOutcome,
    Dead,
    Effect,
    MakeShards,
    MakeWorkers,
    Process,
    ShardCall,
    Tell,
    WorkerCall,
)

T = TypeVar("T")
Steps = Generator[Effect, Any, T]


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
    still_told_s: float = 60.0
    """After how long without an update that is told; again after twice as long, and so on."""
    deaths: int = 5
    """How often a process may die without the run having come any further."""


class RunFailed(ValueError):
    """A run that cannot go on; it can be resumed once the reason is gone."""


class Unreachable(Exception):
    """Somebody died meanwhile. Who is noted, and what was being done is done again."""


@dataclass
class RunProcesses:
    shards: int
    workers: int
    """How many there are at first."""
    updates: int
    patience: Patience = field(default_factory=Patience, kw_only=True)

    def __post_init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._lives: dict[int, int] = {}
        """Of the workers at work."""
        self._dead: dict[Process, str] = {}
        self._made_again: set[Process] = set()
        """Those of the dead that were made again and are not at work yet: they may die again."""
        self._untold: dict[Process, str] = {}
        """Those of the dead of whom nothing was said yet."""
        self._deaths: Counter[Process] = Counter()
        self._version = 0

    def _everyone(self) -> list[Process]:
        return [*(Process("shard", s) for s in self._epochs), *self._at_work()]

    def _at_work(self) -> list[Process]:
        return [Process("worker", worker) for worker in self._lives]

    def _mourn(self, found: Iterable[Dead]) -> None:
        """Take note of the dead, each once."""
        here = set(self._everyone())
        for process, why in found:
            if process in here and (process not in self._dead or process in self._made_again):
                self._made_again.discard(process)
                self._dead[process] = self._untold[process] = why
                self._deaths[process] += 1

    def _no_longer_dead(self, process: Process) -> None:
        self._dead.pop(process, None)
        self._made_again.discard(process)

    def _tell_deaths(self) -> Steps[None]:
        """Each death once."""
        untold, self._untold = self._untold, {}
        for process, why in untold.items():
            yield Tell(f"{process} died ({why}), and is brought back")
            if self._deaths[process] > self.patience.deaths:
                raise RunFailed(
                    f"{process} died {self._deaths[process]} times without the run having come any "
                    f"further than version {self._version}; the last time: {why}"
                )

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
            raise Unreachable
        return [outcome.value for outcome in outcomes if isinstance(outcome, Answer)]
