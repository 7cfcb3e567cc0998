"""Races: who wins, what is not trained, and how they end where nobody arrives."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tardigrad.clusters import Constant
from tardigrad.planning.answer import Priced, TargetResults
from tardigrad.planning.entrants import slower
from tardigrad.planning.measure import Setting
from tardigrad.planning.race import behind, race
from tardigrad.planning.trial import KeptCurves, WallBudget
from tardigrad.policies import Sync
from tests.planning.drawn_curves import Evaluations, drawn

AMPLE = WallBudget(math.inf)


def test_the_fastest_wins_and_that_is_clear() -> None:
    training, candidates = drawn({0.1 * i: 1.0 + 0.5 * i for i in range(1, 31)})
    said: list[str] = []
    found = race(training, candidates, 5, AMPLE, said.append)
    winner = found.entrants[0]
    assert winner.candidate.factor == 0.1
    assert found.clear
    assert not found.spent
    assert len(winner.trials) >= 3
    # exp(−t / 1.5) comes down to 0.1 at t = 1.5 · ln 10, seed 0 without common noise.
    assert winner.reached[0].time_s == pytest.approx(1.5 * math.log(10), rel=0.06)
    assert winner.spread_s > 0
    assert "30 candidates" in said[0]


def test_halving_puts_the_slow_off_until_a_good_time_is_known() -> None:
    slow = {0.1 * i: 4.0 + 2.0 * i for i in range(1, 33)}
    training, candidates = drawn(slow)
    found = race(training, candidates, 3, AMPLE)
    winner = found.entrants[0]
    assert winner.candidate.factor == 0.1
    first_s = winner.reached[0].time_s
    arrived = next(i for i, (w, _, at) in enumerate(training.evaluations) if at > first_s)
    others = [e.candidate.factor for e in found.entrants[17:]]
    early = [at for which, _, at in training.evaluations[:arrived] if which in others]
    assert max(early) < 0.3 * first_s
    late = [(w, seed) for w, seed, _ in training.evaluations[arrived:] if w in others]
    assert late, "they are taken up again"
    assert {seed for _, seed in late} == {0}


def test_nobody_trains_long_after_the_first_has_arrived() -> None:
    training, candidates = drawn({1.0: 1.0, 2.0: 40.0, 3.0: 40.0, 4.0: 40.0, 5.0: 40.0})
    found = race(training, candidates, 3, AMPLE)
    first_s = found.entrants[0].reached[0].time_s
    longest_s = max(at for which, seed, at in training.evaluations if seed == 0)
    assert longest_s <= 2 ** (1 / 8) * behind(1) * first_s
    assert all(not e.reached for e in found.entrants[1:])


def test_long_updates_of_one_do_not_put_the_halving_off() -> None:
    """The first halving comes before a row of local steps ends, so that the slow stop in time."""
    training, candidates = drawn({1.0: 40.0, 2.0: 40.0, 3.0: 3.0})
    slow = Setting(Constant(workers=4, step_s=10.0), gradients=100).measure(Sync(), 8)
    candidates[0] = replace(candidates[0], measured=slow)
    found = race(training, candidates, 2, AMPLE)
    assert found.entrants[0].candidate.factor == 3.0
    first_s = found.entrants[0].reached[0].time_s
    longest_s = max(at for which, seed, at in training.evaluations if seed == 0)
    assert longest_s <= 2 ** (1 / 8) * behind(1) * first_s


def test_a_slow_start_does_not_hide_a_fast_end() -> None:
    """At the first halving nobody is farther from the target than the one that is first there."""
    slowness = {float(i): 3.0 + 0.1 * i for i in range(1, 31)} | {99.0: 0.5}
    training, candidates = drawn(slowness, wait={99.0: 4.0})
    found = race(training, candidates, 3, AMPLE)
    winner = found.entrants[0]
    assert winner.candidate.factor == 99.0
    assert winner.reached[0].time_s == pytest.approx(4 + 0.5 * math.log(10), rel=0.06)
    assert found.undecided == ()


def test_an_unlucky_first_seed_is_not_the_end() -> None:
    """The best over five seeds takes 1.37 times as long as ten others with the first."""
    slowness = {float(i): 3.5 for i in range(2, 12)} | {1.0: 3.0}
    training, candidates = drawn(slowness, luck={(1.0, 0): 1.6}, own_noise=0.0)
    found = race(training, candidates, 5, AMPLE)
    assert found.entrants[0].candidate.factor == 1.0


@pytest.mark.parametrize("case", range(12))
def test_who_is_out_was_shown_to_be_slower(case: int) -> None:
    """Whatever the curves: with an ample budget everybody has had what the winner needs, and more
    by the factor that is told."""
    random = np.random.default_rng(case)
    factors = [float(i) for i in range(20)]
    slowness = {f: float(random.lognormal(1.0, 0.5)) for f in factors}
    wait = {f: float(random.choice([0.0, 1.0, 5.0, 20.0])) for f in factors}
    floor = {f: float(random.choice([0.0, 0.0, 0.05, 0.2])) for f in factors}
    training, candidates = drawn(slowness, wait=wait, floor=floor, own_noise=0.1)
    found = race(training, candidates, 4, AMPLE)
    assert not found.undecided
    first_s = min(e.trials[0].reached.time_s for e in found.entrants if e.trials[0].reached)
    for entrant in found.entrants[1:]:
        trials = entrant.trials
        if not entrant.out:
            assert len(trials) == found.seeds == 4
        elif "times as long" not in entrant.out:
            assert slower(entrant, found.entrants[0])
        elif len(trials) == 1:
            reached = trials[0].reached
            assert (reached or trials[0]).time_s >= behind(1) * first_s
        else:
            bar_s = behind(len(trials)) * min(
                e.first(len(trials)).total_s
                for e in found.entrants
                if len(e.trials) >= len(trials) and not e.first(len(trials)).misses
            )
            assert entrant.total_s >= bar_s


def test_what_the_budget_leaves_undecided_is_told(tmp_path: Path) -> None:
    """The one that is first in the end waits for its turn when the budget ends; a plan that goes on
    with more finds it."""
    slowness = {float(i): 3.0 + 0.1 * i for i in range(1, 31)} | {99.0: 0.5}
    late = {99.0: 4.0}
    enough, candidates = drawn(slowness, wait=late)
    race(enough, candidates, 3, AMPLE)
    arrived = next(i for i, (_, _, at) in enumerate(enough.evaluations) if at > 7.2)
    training, candidates = drawn(slowness, wait=late)
    training.kept = KeptCurves(tmp_path / "curves.jsonl")
    found = race(training, candidates, 3, Evaluations(training, arrived + 30))
    assert found.spent
    assert not found.clear
    assert found.entrants[0].candidate.factor != 99.0
    assert 99.0 in [e.candidate.factor for e in found.undecided]
    assert not any(e.out for e in found.undecided)
    answer = TargetResults(training.target, (Priced(training.cluster, found),))
    told = f"{len(found.undecided)} of 31 candidates had not been shown to be slower"
    assert told in answer.why()
    assert "a larger --budget may decide them" in answer.why()
    assert told in str(answer.table())
    data = answer.data()
    assert data["undecided"] == len(found.undecided)
    candidates_told = data["candidates"]
    assert isinstance(candidates_told, list)
    assert sum(one["undecided"] for one in candidates_told) == len(found.undecided)
    again, candidates = drawn(slowness, wait=late)
    again.kept = KeptCurves(tmp_path / "curves.jsonl")
    found = race(again, candidates, 3, AMPLE)
    assert found.entrants[0].candidate.factor == 99.0
    assert not found.undecided
    assert "--budget" not in TargetResults(again.target, (Priced(again.cluster, found),)).why()
    assert len(again.evaluations) < len(enough.evaluations)


def test_a_budget_that_ends_among_the_seeds_leaves_those_undecided_that_are_near() -> None:
    training, candidates = drawn({1.0: 3.0, 2.0: 3.1, 3.0: 30.0})
    race(training, candidates, 1, AMPLE)
    one_seed = len(training.evaluations)
    training, candidates = drawn({1.0: 3.0, 2.0: 3.1, 3.0: 30.0})
    found = race(training, candidates, 5, Evaluations(training, one_seed + 3))
    assert found.seeds == 1
    assert [e.candidate.factor for e in found.undecided] == [2.0]
    training, candidates = drawn({1.0: 3.0, 2.0: 3.1, 3.0: 30.0}, own_noise=0.1)
    found = race(training, candidates, 3, AMPLE)
    assert not found.clear
    assert not found.undecided, "no budget would tell more: the seeds are used up"


def test_equals_are_seldom_parted() -> None:
    """By a 95% interval after three, four and five seeds: not more than a few of forty pairs."""
    parted = 0
    for pair in range(40):
        training, candidates = drawn({1.0 + pair: 3.0, 100.0 + pair: 3.0}, own_noise=0.05)
        parted += race(training, candidates, 5, AMPLE).clear
    assert parted <= 8


def test_a_seed_that_is_another_problem_does_not_hide_who_is_faster() -> None:
    """Seeds differ by up to 4 times; one candidate is always about a tenth slower."""
    training, candidates = drawn({1.0: 3.0, 2.0: 3.45}, own_noise=0.01)
    found = race(training, candidates, 5, AMPLE)
    assert found.clear
    assert found.entrants[0].candidate.factor == 1.0
    assert "paired by seed" in found.entrants[1].out


def test_who_diverges_is_out() -> None:
    training, candidates = drawn({1.0: 3.0, 2.0: math.inf})
    found = race(training, candidates, 2, AMPLE)
    assert [e.out for e in found.entrants] == ["", "diverged"]


def test_nobody_arriving_is_told_with_the_nearest() -> None:
    floors = {1.0: 0.3, 2.0: 0.2}
    training, candidates = drawn({1.0: 3.0, 2.0: 3.0}, floor=floors)
    message = (
        r"no candidate reached loss=0.1 within 100 virtual seconds: the nearest was loss = 0.2 "
    )
    with pytest.raises(ValueError, match=message):
        race(training, candidates, 2, AMPLE)
    training, candidates = drawn({1.0: math.inf})
    with pytest.raises(ValueError, match="every candidate diverged"):
        race(training, candidates, 2, AMPLE)


def test_a_budget_that_is_too_small_is_told() -> None:
    training, candidates = drawn({1.0: 3.0})
    with pytest.raises(
        ValueError, match=r"budget of 1e-09 s was spent before .* reached loss=0\.1"
    ):
        race(training, candidates, 2, WallBudget(1e-9))


def test_a_plan_that_was_stopped_goes_on(tmp_path: Path) -> None:
    slowness = {0.5 * i: 2.0 + i for i in range(1, 13)}
    training, candidates = drawn(slowness)
    whole = race(training, candidates, 3, AMPLE)
    training, candidates = drawn(slowness)
    training.kept = KeptCurves(tmp_path / "plan" / "curves.jsonl")
    race(training, candidates, 1, AMPLE)
    with (tmp_path / "plan" / "curves.jsonl").open("a") as file:
        file.write('{"key": "half a li')  # it was killed while it wrote
    again, candidates = drawn(slowness)
    again.kept = KeptCurves(tmp_path / "plan" / "curves.jsonl")
    found = race(again, candidates, 3, AMPLE)
    assert all(seed > 0 for _, seed, _ in again.evaluations)
    assert [e.candidate.factor for e in found.entrants] == [
        e.candidate.factor for e in whole.entrants
    ]
    assert found.entrants[0].mean_s == whole.entrants[0].mean_s
