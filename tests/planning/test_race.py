"""Races: who wins, what is not trained, and how they end where nobody arrives."""

import math
from pathlib import Path

import pytest

from tardigrad.planning.race import race
from tardigrad.planning.trial import KeptCurves, WallBudget
from tests.planning.drawn_curves import drawn

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


def test_slow_ones_are_halved_away_before_they_cost_much() -> None:
    slow = {0.1 * i: 4.0 + 2.0 * i for i in range(1, 33)}
    training, candidates = drawn(slow)
    found = race(training, candidates, 3, AMPLE)
    assert found.entrants[0].candidate.factor == 0.1
    halved = [e for e in found.entrants if "halved away" in e.out]
    assert len(halved) >= 16
    longest_s = {e.candidate.factor: e.trials[0].time_s for e in halved}
    assert max(longest_s.values()) < 0.6 * found.entrants[0].mean_s
    seeds = {which: seed for which, seed, _ in training.evaluations}
    assert {seeds[e.candidate.factor] for e in halved} == {0}


def test_nobody_trains_long_after_the_first_has_arrived() -> None:
    training, candidates = drawn({1.0: 1.0, 2.0: 40.0, 3.0: 40.0, 4.0: 40.0, 5.0: 40.0})
    found = race(training, candidates, 3, AMPLE)
    first_s = found.entrants[0].reached[0].time_s
    assert max(at for which, seed, at in training.evaluations if seed == 0) < 2.1 * first_s
    assert all(not e.reached for e in found.entrants[1:])


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
