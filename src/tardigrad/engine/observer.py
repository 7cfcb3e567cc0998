"""Observers of a run: one small interface, called by every way of running."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tardigrad.scheduling import Schedule

EvaluationRecord = Mapping[str, float]
"""What one evaluation measured, by name; `update` says when."""


class Tick(NamedTuple):
    """Where a run stands."""

    updates: int
    total: int
    loss: float
    """The batch loss of the last update; NaN where it is not known."""


class Started(NamedTuple):
    """A run that is about to begin, or to go on."""

    total: int
    """Updates to be made in all."""
    updates: int
    """Made already, where it goes on."""
    records: Sequence[EvaluationRecord]
    """Evaluated already, where it goes on."""
    schedule: Schedule | None
    """None where it is made meanwhile, as on Ray."""
    about: Mapping[str, Any]
    """What is run, as plain data: a spec, or what the schedule and the rule say of themselves."""


class Ended(NamedTuple):
    """How a run ended."""

    by: str
    """"updates" (all were made); "loss", "accuracy", "wall_s", "virtual_s" or "patience" of a
    `Stop`; "diverged", "interrupted" or "error"."""
    why: str
    """The same for people."""
    updates: int
    """How many were made."""

    @staticmethod
    def all_made(updates: int) -> "Ended":
        return Ended("updates", f"all {updates:,} updates were made", updates)


class Observer:
    """Looks on while a run goes. Each method does nothing here: write those you need.

    An error in one of them ends the run. They are called in this process, and the run waits for
    them, so they should be quick.
    """

    def started(self, start: Started) -> None:
        """Before the first update; once, also where a run goes on."""

    def updated(self, tick: Tick) -> None:
        """After every update; by the fast engine after every batch of them, on Ray several times a
        second."""

    def evaluated(self, record: EvaluationRecord) -> None:
        """After every evaluation. On Ray `time_s` counts from the run's beginning here, and there
        is no batch loss yet: both are put right in the run's history at the end."""

    def happened(self, what: str) -> None:
        """In a line: a checkpoint was made, a process has died."""

    def ended(self, end: Ended) -> None:
        """Once, however it ended, also by an error; but not where the process was killed."""


Watch = Callable[[Tick], None]


class Observers(Observer):
    """Several, as one; `watch` is one that is told of updates alone."""

    def __init__(self, each: Sequence[Observer] = (), watch: Watch | None = None) -> None:
        for one in each:
            if not isinstance(one, Observer):
                raise ValueError(
                    f"observers is a list of tg.Observer objects, got {one!r}: subclass tg.Observer"
                )
        self.each = tuple(each)
        self._watch = watch

    @property
    def any(self) -> bool:
        """Whether anybody looks on: what nobody sees need not be made."""
        return bool(self.each) or self._watch is not None

    def started(self, start: Started) -> None:
        for one in self.each:
            one.started(start)

    def updated(self, tick: Tick) -> None:
        if self._watch is not None:
            self._watch(tick)
        for one in self.each:
            one.updated(tick)

    def evaluated(self, record: EvaluationRecord) -> None:
        for one in self.each:
            one.evaluated(record)

    def happened(self, what: str) -> None:
        for one in self.each:
            one.happened(what)

    def ended(self, end: Ended) -> None:
        for one in self.each:
            one.ended(end)
