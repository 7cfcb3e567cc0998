"""Who takes part in a race, how it did, and how two of them compare."""

import math
import statistics
from dataclasses import dataclass, field

from tardigrad.planning.offers import Candidate
from tardigrad.planning.trial import CurvePoint, Trial
from tardigrad.report.intervals import mean_interval

DIVERGED = "diverged"


@dataclass(eq=False)
class Entrant:
    """A candidate, and its trials by seed; `out` says how it was shown not to be the fastest."""

    candidate: Candidate
    trials: list[Trial] = field(default_factory=list)
    out: str = ""

    @property
    def reached(self) -> list[CurvePoint]:
        """With each seed, when it reached the target."""
        points = [trial.reached for trial in self.trials]
        return [point for point in points if point is not None]

    @property
    def misses(self) -> int:
        """How many seeds did not reach it."""
        return len(self.trials) - len(self.reached)

    @property
    def mean_s(self) -> float:
        """Mean time to the target, of the seeds that reached it; infinite where none did."""
        times_s = [point.time_s for point in self.reached]
        return statistics.fmean(times_s) if times_s else math.inf

    @property
    def total_s(self) -> float:
        """Over all its seeds (`Trial.lasted_s`)."""
        return math.fsum(trial.lasted_s for trial in self.trials)

    @property
    def by_time(self) -> tuple[int, float]:
        """To be sorted by: whoever misses the target is behind."""
        return self.misses, self.mean_s

    def first(self, seeds: int) -> "Entrant":
        """With the first seeds alone."""
        return Entrant(self.candidate, self.trials[:seeds], self.out)

    @property
    def spread_s(self) -> float:
        """Standard deviation of the time over seeds."""
        times_s = [point.time_s for point in self.reached]
        return statistics.stdev(times_s) if len(times_s) > 1 else math.nan


@dataclass(frozen=True)
class Race:
    """How it ended.

    Args:
        entrants: the first is the winner.
        seeds: how many all had that were near to the end.
        undecided: who might yet be faster than the winner, the budget having been spent too early.
        clear: whether everybody else was shown to be slower.
        trials: runs in all.
    """

    entrants: tuple[Entrant, ...]
    seeds: int
    clear: bool
    spent: bool
    trials: int
    undecided: tuple[Entrant, ...] = ()


def slower(one: Entrant, other: Entrant, by: float = 1.0) -> bool:
    """Whether the ratio of their times, paired by seed, is above `by` by a 95% interval."""
    pairs = paired_times(one, other)
    low = mean_interval([math.log(a / b) for a, b in pairs]).low if pairs else None
    return low is not None and low > math.log(by)


def paired_times(one: Entrant, other: Entrant) -> list[tuple[float, float]]:
    """Of each seed with which both reached the target."""
    pairs = zip(one.trials, other.trials, strict=False)
    both = [(a.reached, b.reached) for a, b in pairs]
    return [(a.time_s, b.time_s) for a, b in both if a is not None and b is not None]
