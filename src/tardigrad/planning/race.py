"""Candidates trained against one another until it is clear which reaches the target first."""

import math
from collections.abc import Sequence

from tardigrad.core.checks import require
from tardigrad.engine.run import Say
from tardigrad.planning.entrants import DIVERGED, Entrant, Race, slower
from tardigrad.planning.offers import Candidate
from tardigrad.planning.trial import Training, Trial, WallBudget

FIRST = 2.0**-5
"""The first halving comes at this share of the longest time, the next at twice that."""
BEHIND = 1.6
"""Who takes so many times as long as the first with one seed is out (**choice**, see `behind`)."""
NEAR = 1.1
"""Who may be within this of the first has the next seed too: a few seeds may all be easy for it."""
MISSED = "missed the target with a seed"


def behind(seeds: int) -> float:
    """How many times the fastest's time over so many seeds shows that somebody is slower.

    Luck with one seed multiplies a candidate's time: where an MLP is to reach an accuracy on MNIST,
    by a factor whose logarithm has a standard deviation σ of 0.13 to 0.15 (seeds' and candidates'
    means removed). The first of ten that are alike is 1.5 σ luckier than their mean, and one in
    twenty is 1.6 σ unluckier: exp(3.1 σ) = 1.6. The mean over n seeds varies less by √n.
    """
    return float(BEHIND ** (seeds**-0.5))


def race(
    training: Training,
    candidates: Sequence[Candidate],
    seeds: int,
    budget: WallBudget,
    say: Say | None = None,
) -> Race:
    """The first seed for all, then the next ones for those that are near.

    Halving finds a good time early: all candidates train for a 32nd of the longest time, the half
    that is nearer to the target twice as long, and so on, until one reaches it. Nobody is given up
    by that. The others are then taken up again, the most promising first, and train until they
    reach the target or have taken `behind(1)` times as long as the fastest so far.

    Who reaches the target within that goes on with the next seeds, each of which is the same step
    times, data, batches and initial weights for all. After n seeds those are out whose times add up
    to `behind(n)` times the fastest's (with the n-th they train no further than that), or that are
    more than `NEAR` times slower by a 95% interval of the times' ratios paired by seed (of their
    logarithms: seeds may be problems of different length). The winner then has the seeds that are
    left.

    Where the budget is spent first, those that were not shown to be slower are `undecided`.

    Raises ValueError where nobody reaches the target, with the nearest that anybody came.
    """
    say = say or (lambda line: None)
    entrants = [Entrant(c, [training.trial(c, 0)]) for c in candidates]
    _halve(training, entrants, budget, say)
    _take_up(training, entrants, budget, say)
    if math.isinf(_best_s(entrants)):
        _nobody(training, entrants, budget)
    _judge_first_seed(training, entrants)
    going = sorted((e for e in entrants if e.reached and not e.out), key=lambda e: e.by_time)
    undecided = [e for e in entrants if not e.reached and not e.out]
    done = 1
    while done < seeds and len(going) > 1 and not budget.spent:
        say(f"seed {done + 1}: {len(going)} candidates; best so far {going[0].mean_s:.4g} s")
        if not _next_seed(training, going, done, budget):
            break
        done += 1
        going = _still_in(training, sorted(going, key=lambda e: e.by_time))
    _all_seeds(training, going[0], seeds, budget)
    if done < seeds:
        undecided += going[1:]
    ranked = [*going, *sorted((e for e in entrants if e not in going), key=lambda e: e.by_time)]
    made = sum(trial.begun for entrant in entrants for trial in entrant.trials)
    clear = len(going) == 1 and not undecided and not going[0].misses
    return Race(tuple(ranked), done, clear, budget.spent, made, tuple(undecided))


def _halve(training: Training, entrants: list[Entrant], budget: WallBudget, say: Say) -> None:
    """With the first seed, until one reaches the target or those left have had the longest time."""
    going, until_s = list(entrants), FIRST * training.horizon_s
    while going and not budget.spent:
        say(f"{len(going)} candidates to {until_s:.4g} s of virtual time")
        for entrant in sorted(going, key=_by_gap):
            _train(entrant, min(until_s, _enough_s(training, entrants)), budget)
        if math.isfinite(_best_s(entrants)) or until_s >= training.horizon_s:
            return
        going = sorted((e for e in going if not e.out), key=_by_gap)
        going, until_s = going[: math.ceil(len(going) / 2)], min(2 * until_s, training.horizon_s)


def _take_up(training: Training, entrants: list[Entrant], budget: WallBudget, say: Say) -> None:
    """Those that halving left behind, each until it is decided: who came farther there first, then
    who was nearer to the target."""
    waiting = [e for e in entrants if not e.out and not e.reached]
    if waiting and not budget.spent:
        until_s = _enough_s(training, entrants)
        say(f"{len(waiting)} candidates that were put off, to {until_s:.4g} s at most")
    for entrant in sorted(waiting, key=lambda e: (-e.trials[0].time_s, _by_gap(e))):
        _train(entrant, _enough_s(training, entrants), budget)


def _train(entrant: Entrant, until_s: float, budget: WallBudget) -> None:
    trial = entrant.trials[0]
    trial.train(until_s, budget)
    if trial.diverged:
        entrant.out = DIVERGED


def _enough_s(training: Training, entrants: Sequence[Entrant]) -> float:
    """With the first seed, who has not reached the target by then is out."""
    return training.evaluation_at(behind(1) * _best_s(entrants))


def _judge_first_seed(training: Training, entrants: Sequence[Entrant]) -> None:
    best_s = _best_s(entrants)
    for entrant in entrants:
        trial = entrant.trials[0]
        trial.let_go()
        late = trial.time_s >= _enough_s(training, entrants) and trial.reached is None
        if not entrant.out and (late or behind(1) * best_s < entrant.mean_s < math.inf):
            entrant.out = _why_out(training, trial, 1)


def _next_seed(training: Training, going: list[Entrant], seed: int, budget: WallBudget) -> bool:
    """Train all with this seed, the leader first; False, and as if it had not been, where the
    budget is spent before all have had it: means would compare different seeds."""
    trials = [training.trial(entrant.candidate, seed) for entrant in going]
    least_s = math.inf  # the leader may take its time: another seed may be another problem
    for entrant, trial in zip(going, trials, strict=True):
        before_s = entrant.total_s
        trial.train(training.evaluation_at(behind(seed + 1) * least_s - before_s), budget)
        trial.let_go()
        if trial.reached is not None:
            least_s = min(least_s, before_s + trial.reached.time_s)
    if budget.spent:
        return False
    for entrant, trial in zip(going, trials, strict=True):
        entrant.trials.append(trial)
    return True


def _still_in(training: Training, going: list[Entrant]) -> list[Entrant]:
    """The first, and those that may yet be as fast."""
    first, *others = going
    seeds = len(first.trials)
    for other in others:
        if other.misses > first.misses or other.total_s > behind(seeds) * first.total_s:
            other.out = _why_out(training, other.trials[-1], seeds)
        elif slower(other, first, NEAR):
            other.out = "slower, paired by seed"
    return [entrant for entrant in going if not entrant.out]


def _why_out(training: Training, last: Trial, seeds: int) -> str:
    if last.diverged:
        return DIVERGED
    if last.reached is None and last.time_s >= training.horizon_s:
        return MISSED
    return f"took more than {behind(seeds):.2g} times as long"


def _all_seeds(training: Training, winner: Entrant, seeds: int, budget: WallBudget) -> None:
    """The winner has every seed, so that its mean and spread are not those of easy ones alone."""
    for seed in range(len(winner.trials), seeds):
        trial = training.trial(winner.candidate, seed)
        trial.train(math.inf, budget)
        if budget.spent:
            return
        winner.trials.append(trial)


def _nobody(training: Training, entrants: list[Entrant], budget: WallBudget) -> None:
    begun = [e for e in entrants if e.trials[0].begun]
    tried = [e for e in begun if not e.trials[0].diverged]
    none = "none was measured even once; give a larger --budget"
    require(bool(begun), f"{_unreached(training, budget)}: {none}")
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
