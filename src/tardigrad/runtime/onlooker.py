"""Watches a run on Ray: evaluates, tells observers, and says when to stop."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tardigrad.engine.observer import Ended, Observers, Started, Tick
from tardigrad.engine.options import Evaluation
from tardigrad.engine.run import Say
from tardigrad.engine.stop import Stop
from tardigrad.protocol.coordinator import Coordinator
from tardigrad.recording.replica import Snapshot
from tardigrad.runtime.evaluator import Evaluator

if TYPE_CHECKING:
    from tardigrad.runtime.driver import Live


class Onlooker:
    """Called by the driver; a stop is the coordinator's to carry out."""

    def __init__(
        self,
        coordinator: Coordinator,
        evaluator: Evaluator | None,
        evaluation: Evaluation,
        stop: Stop | None,
        observers: Observers,
        watch: "Callable[[Live], None] | None",
        say: Say | None,
        began_s: float,
    ) -> None:
        self.coordinator, self.evaluator, self.evaluation = coordinator, evaluator, evaluation
        self.observers, self._stop, self._watch, self._say = observers, stop, watch, say
        self._began_s = began_s
        self._shown = False
        self.ended: Ended | None = None
        """What ends the run before its updates are made."""

    def begin(self, about: Mapping[str, Any]) -> None:
        records = sorted(self._records, key=lambda record: record["update"])
        made = int(records[-1]["update"]) if records else 0
        start = Started(self.coordinator.updates, made, records, None, about)
        self.observers.started(start)
        if records:
            self._judge()

    def tell(self, what: str) -> None:
        self.observers.happened(what)
        if self._say is not None:
            self._say(what)

    def take(self, parts: list[Snapshot]) -> None:
        """A version to evaluate."""
        assert self.evaluator is not None
        if self.evaluator.take(parts):
            self.observers.evaluated(self.evaluator.records[-1])
            self._judge()

    def show(self, live: "Live") -> None:
        """How it stands, several times a second."""
        if not self._shown:
            self._shown = True
            self.tell(f"all processes are at work after {time.time() - self._began_s:.1f} s")
        if self._watch is not None:
            self._watch(live)
        updates = min(shard.version for shard in live.shards)
        if self.observers.any and updates:
            self.observers.updated(Tick(updates, self.coordinator.updates, live.shards[0].loss))
        if self._stop is not None and self.ended is None:
            self._end(self._stop.by_clock(time.time() - self._began_s, -math.inf, updates))

    def _judge(self) -> None:
        if self._stop is not None and self.evaluator is not None and self.ended is None:
            self._end(self._stop.judged(self._records, self.evaluator.task, self.evaluation))

    def _end(self, ended: Ended | None) -> None:
        if ended is not None:
            self.ended, self.coordinator.ends_early = ended, True

    @property
    def _records(self) -> Sequence[dict[str, float]]:
        return self.evaluator.records if self.evaluator is not None else []
