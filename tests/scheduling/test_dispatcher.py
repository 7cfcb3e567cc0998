"""The dispatcher: weights, how they change on being drawn, and draws by key."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import FixedOrder
from tardigrad.clusters.dispatcher import UniformDispatch

EVENTS = 20_000


def drawn(cluster: tg.Dispatcher, events: int = EVENTS, seed: int = 0) -> np.ndarray:
    made = tg.schedule(tg.Async(), cluster, events, seed)
    return made.worker[made.group_rows]


def test_weights_are_chances() -> None:
    weights = (1.0, 0.0, 5.0, 2.0)
    counts = np.bincount(drawn(tg.Dispatcher(4, weights=weights)), minlength=4)
    for count, weight in zip(counts, weights, strict=True):
        chance = weight / sum(weights)
        assert abs(count - EVENTS * chance) <= 5 * math.sqrt(EVENTS * chance * (1 - chance))


def test_equal_weights_are_uniform_but_for_the_draws() -> None:
    """Scaling all weights changes no draw."""
    small, large = (drawn(tg.Dispatcher(3, weights=(w, w, w)), 500) for w in (1.0, 8.0))
    assert np.array_equal(small, large)


def longest_absence(order: np.ndarray, workers: int) -> int:
    return max(int(np.diff(np.nonzero(order == w)[0]).max()) for w in range(workers))


def test_a_drawn_factor_below_1_makes_rounds_even_and_above_1_uneven() -> None:
    even, free, uneven = (
        drawn(tg.Dispatcher(5, drawn_factor=factor), 3000) for factor in (1e-3, 1.0, 2.0)
    )
    assert longest_absence(even, 5) < longest_absence(free, 5) / 3
    assert np.bincount(even, minlength=5).std() < 3
    assert np.bincount(uneven, minlength=5).max() > 2900


def test_a_tiny_drawn_factor_deals_everyone_out_before_anyone_comes_again() -> None:
    order = drawn(tg.Dispatcher(6, drawn_factor=1e-9), 600)
    assert all(sorted(order[i : i + 6]) == list(range(6)) for i in range(0, 600, 6))


def test_a_change_rule_of_ones_own() -> None:
    """Always the next worker in turn."""

    def in_turn(weights: np.ndarray, who: int) -> np.ndarray:
        new = np.zeros_like(weights)
        new[(who + 1) % len(weights)] = 1.0
        return new

    order = drawn(tg.Dispatcher(4, weights=(1.0, 0.0, 0.0, 0.0), change=in_turn), 12)
    assert order.tolist() == [0, 1, 2, 3] * 3


def test_the_factor_is_a_change_rule() -> None:
    def halve(weights: np.ndarray, who: int) -> np.ndarray:
        weights[who] *= 0.5
        return weights

    cluster = tg.Dispatcher(4, change=halve)
    assert np.array_equal(drawn(cluster, 800), drawn(tg.Dispatcher(4, drawn_factor=0.5), 800))
    again = drawn(cluster, 800)  # a rule that works in place spoils nothing for the next run
    assert np.array_equal(again, drawn(cluster, 800))


def test_waiting_workers_are_not_drawn() -> None:
    made = tg.schedule(tg.Sync(), tg.Dispatcher(4, weights=(9.0, 1.0, 1.0, 1.0)), 50)
    order = made.worker[np.argsort(made.end_s, kind="stable")][:200]
    assert all(sorted(order[i : i + 4]) == [0, 1, 2, 3] for i in range(0, 200, 4))


def test_a_worker_more_draws_from_the_same_stream() -> None:
    dispatch = tg.Dispatcher(3).dispatch(7)
    assert isinstance(dispatch, UniformDispatch)
    computing = np.arange(3)
    asked = [dispatch.next(event, computing) for event in (5, 0, 3, 5)]
    assert asked[0] == asked[3]
    assert asked == [int(dispatch.order(3, 6)[event]) for event in (5, 0, 3, 5)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1"),
        ({"weights": (1.0, 2.0)}, "weights has 2 entries for 3 workers"),
        ({"weights": (1.0, -2.0, 1.0)}, r"weights\[1\] must not be negative"),
        ({"weights": (0.0, 0.0, 0.0)}, "weights must not all be 0"),
        ({"drawn_factor": 0.0}, "drawn_factor must be greater than 0"),
        ({"drawn_factor": "2"}, "drawn_factor must be a finite number"),
    ],
)
def test_a_bad_dispatcher_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tg.Dispatcher(**({"workers": 3} | options))


@pytest.mark.parametrize(
    "change",
    [
        lambda weights, who: weights[:-1],
        lambda weights, who: np.append(weights, 1.0),
        lambda weights, who: -weights,
        lambda weights, who: weights * math.nan,
        lambda weights, who: weights * math.inf,
    ],
)
def test_a_change_rule_that_returns_no_weights_is_refused(change: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="change rule must return one finite weight ≥ 0"):
        drawn(tg.Dispatcher(3, change=change), 10)


def test_weights_that_leave_nobody_to_draw_are_refused() -> None:
    with pytest.raises(ValueError, match="no computing worker has a positive selection weight"):
        tg.schedule(tg.Sync(), tg.Dispatcher(2, weights=(1.0, 0.0)), 3)


def test_a_fixed_order_knows_its_workers() -> None:
    order = FixedOrder(np.array([1, 4]), 2)
    assert order.next(0, np.arange(2)) == 1
    with pytest.raises(ValueError, match="use 0 to 1"):
        order.next(1, np.arange(2))
