"""Candidates trained against one another until it is clear which reaches the target first."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from tardigrad.core.checks import require
from tardigrad.engine.run import Say
from tardigrad.planning.offers import Candidate
from tardigrad.planning.trial import CurvePoint, Training, Trial, WallBudget
from tardigrad.report.intervals import mean_interval

FIRST = 2.0**-5
"""The first halving comes at this share of the longest time, the next at twice that."""
ROUNDS = 5
"""But not before the policy with the longest update has made so many."""
LEAST = 8
"""So many are never halved away, and have a second seed: a curve that is behind may still win."""
DIVERGED = "diverged"
SURE = 3
"""Seeds that the winner has had before it is clear that it wins."""
BEHIND = 1.3
"""Who takes so many times as long as the first is out: with each of fewer than `SURE` seeds, or on
the geometric mean of more."""
NEAR = 1.1
"""Who may be within this of the first has the next seed too: a few seeds may all be easy for it."""
TOO_SLOW = f"more than {BEHIND:g} times as slow"


@dataclass(eq=False)
class Entrant:
    """A candidate, and its trials by seed; `out` says why it was given up."""

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
    """How it ended. `entrants`: the first is the winner. `clear`: whether nobody else was left."""

    entrants: tuple[Entrant, ...]
    seeds: int
    clear: bool
    spent: bool
    trials: int


def race(
    training: Training,
    candidates: Sequence[Candidate],
    seeds: int,
    budget: WallBudget,
    say: Say | None = None,
) -> Race:
    """Successive halving with the first seed, then the others' seeds for those that are near.

    All candidates train for a 32nd of the longest time; the half that is farther from the target
    is given up (but `LEAST` stay) and the rest train for twice as long, until one reaches it.
    From then on nobody trains for longer than `BEHIND` times the best time. Who reaches the target
    within that goes on with the next seeds, each of which is the same step times, data, batches
    and initial weights for all. After each seed those are given up that are `BEHIND` times slower,
    or more than `NEAR` times slower by a 95% interval of the times' ratios paired by seed (of their
    logarithms: seeds may be problems of different length). The winner then has the seeds that are
    left.

    Raises ValueError where nobody reaches the target, with the nearest that anybody came.
    """
    say = say or (lambda line: None)
    entrants = [Entrant(c, [training.trial(c, 0)]) for c in candidates]
    _first_seed(training, entrants, budget, say)
    best_s = _best_s(entrants)
    if math.isinf(best_s):
        _nobody(training, entrants, budget)
    going = _finalists(entrants, best_s, budget)
    done = 1
    while done < seeds and not budget.spent and (len(going) > 1 or done < SURE):
        say(f"seed {done + 1}: {len(going)} candidates; best so far {going[0].mean_s:.4g} s")
        trials = [training.trial(e.candidate, done) for e in going]
        until_s = math.inf  # the first may take its time: another seed may be another problem
        for trial in trials:
            trial.train(until_s, budget)
            reached = trials[0].reached
            until_s = math.inf if reached is None else 2 * reached.time_s
        if budget.spent:
            break  # a seed that not all have had would compare different runs
        for entrant, trial in zip(going, trials, strict=True):
            entrant.trials.append(trial)
        done += 1
        going = _still_in(sorted(going, key=lambda e: e.by_time))
    _all_seeds(training, going[0], seeds, budget)
    ranked = [*going, *sorted((e for e in entrants if e not in going), key=lambda e: e.by_time)]
    made = sum(len(entrant.trials) for entrant in entrants)
    return Race(tuple(ranked), done, len(going) == 1, budget.spent, made)


def _first_seed(training: Training, entrants: list[Entrant], budget: WallBudget, say: Say) -> None:
    slowest_s = max(entrant.candidate.measured.summary.update_s for entrant in entrants)
    until_s = min(training.horizon_s, max(FIRST * training.horizon_s, ROUNDS * slowest_s))
    going = list(entrants)
    while going and not budget.spent:
        say(f"{len(going)} candidates to {until_s:.4g} s of virtual time")
        for entrant in sorted(going, key=_by_gap):
            entrant.trials[0].train(min(until_s, BEHIND * _best_s(entrants)), budget)
            if entrant.trials[0].diverged:
                entrant.out = DIVERGED
        best_s = _best_s(entrants)
        going = [e for e in going if not e.out and not e.reached]
        going = [e for e in going if e.trials[0].time_s * 1.1 < BEHIND * best_s]
        if until_s >= training.horizon_s or until_s >= BEHIND * best_s:
            return
        going.sort(key=_by_gap)
        keep = len(going) if math.isfinite(best_s) else max(LEAST, math.ceil(len(going) / 2))
        for slow in going[keep:]:
            slow.out = f"halved away at {until_s:.4g} s"
        going, until_s = going[:keep], min(2 * until_s, training.horizon_s)


def _all_seeds(training: Training, winner: Entrant, seeds: int, budget: WallBudget) -> None:
    """The winner has every seed, so that its mean and spread are not those of easy ones alone."""
    for seed in range(len(winner.trials), seeds):
        trial = training.trial(winner.candidate, seed)
        trial.train(math.inf, budget)
        if budget.spent:
            return
        winner.trials.append(trial)


def _finalists(entrants: list[Entrant], best_s: float, budget: WallBudget) -> list[Entrant]:
    """Those that are near the best, and `LEAST` as far as so many reach the target in twice its
    time: with one seed it is not known how much seeds differ."""
    near = [e for e in entrants if e.mean_s <= BEHIND * best_s]
    others = sorted((e for e in entrants if e not in near and not e.out), key=_by_gap)
    for entrant in others[: max(0, LEAST - len(near))]:
        entrant.trials[0].train(2 * best_s, budget)
        if entrant.reached:
            near.append(entrant)
    for late in others:
        if late not in near:
            late.out = TOO_SLOW
    return sorted(near, key=lambda e: e.by_time)


def _still_in(going: list[Entrant]) -> list[Entrant]:
    """The first, and those that may yet be as fast."""
    first, *others = going
    for other in others:
        ratios = paired_ratios(other, first)
        early = len(first.trials) < SURE
        if other.misses > first.misses:
            other.out = "missed the target with a seed"
        elif ratios and (min(ratios) if early else geometric_mean(ratios)) > BEHIND:
            other.out = TOO_SLOW
        elif not early and slower(other, first, NEAR):
            other.out = "slower, paired by seed"
    return [entrant for entrant in going if not entrant.out]


def slower(one: Entrant, other: Entrant, by: float = 1.0) -> bool:
    """Whether the ratio of their times, paired by seed, is above `by` by a 95% interval."""
    ratios = paired_ratios(one, other)
    low = mean_interval([math.log(ratio) for ratio in ratios]).low if ratios else None
    return low is not None and low > math.log(by)


def paired_ratios(one: Entrant, other: Entrant) -> list[float]:
    """Of their times, with each seed with which both reached the target."""
    pairs = zip(one.trials, other.trials, strict=False)
    both = [(a.reached, b.reached) for a, b in pairs]
    return [a.time_s / b.time_s for a, b in both if a is not None and b is not None]


def _nobody(training: Training, entrants: list[Entrant], budget: WallBudget) -> None:
    tried = [e for e in entrants if e.trials[0].points and not e.trials[0].diverged]
    require(bool(tried), _unreached(training, budget) + ": every candidate diverged; lower rule.lr")
    each = [(point, e.candidate) for e in tried for point in e.trials[0].points]
    best, candidate = min(each, key=lambda one: training.target.gap(one[0].value))
    advice = (
        "give a larger --budget or an easier target"
        if budget.spent
        else "give an easier target, or let the spec train for more updates"
    )
    raise ValueError(
        f"{_unreached(training, budget)}: the nearest was {training.target.what} = "
        f"{best.value:.4g} after {best.time_s:.4g} s ({candidate.label}); {advice}"
    )


def _unreached(training: Training, budget: WallBudget) -> str:
    if budget.spent:
        return (
            f"the budget of {budget.seconds:g} s was spent before a candidate reached "
            f"{training.target}"
        )
    return f"no candidate reached {training.target} within {training.horizon_s:.4g} virtual seconds"


def _best_s(entrants: Sequence[Entrant]) -> float:
    return min((entrant.mean_s for entrant in entrants), default=math.inf)


def _by_gap(entrant: Entrant) -> float:
    return entrant.trials[0].gap
