"""Quorums that weigh gradients, and whose grace is measured."""

import statistics
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.policies import Apply, SetTimer
from tardigrad.policies.groups import GroupHalf
from tests.policies.hand_fed_shard import Shard, dropped, releases

SLACK = 1 + 1e-9


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("equal", ()),
        ("samples", (2 / 12, 4 / 12, 6 / 12)),
        ("samples_squared_per_step", (4 / 26, 4 / 26, 18 / 26)),
    ],
)
def test_how_much_gradients_count(
    weights: Literal["equal", "samples", "samples_squared_per_step"], expected: tuple[float, ...]
) -> None:
    """In worker order: 2 samples in one step, 4 in four, 6 in two."""
    shard = Shard(tg.Quorum(3, weights=weights), 3)
    shard.push(2, samples=6, steps=2)
    shard.push(0, samples=2, steps=1)
    (applied, *released) = shard.push(1, samples=4, steps=4)
    assert released == releases(0, 1, 2)
    assert applied == Apply((1, 2, 0), 1.0, pytest.approx(expected, abs=1e-15))  # type: ignore[arg-type]
    assert tg.Quorum(3, weights=weights).gives_weights == bool(expected)


def test_rows_that_are_worth_the_same_are_the_mean() -> None:
    shard = Shard(tg.Quorum(2, weights="samples"), 2)
    shard.push(0, samples=7)
    assert shard.push(1, samples=7)[0] == Apply((0, 1))


def test_a_measured_grace_waits_for_what_usually_comes() -> None:
    """median + 2 · MAD of when gradients came after their version's beginning, late ones too."""
    shard = Shard(tg.Quorum(2, grace_deviations=2.0), 4)
    assert shard.push(0, at_s=1.0) == []
    # Of 1.0 and 1.4: 1.2 and 0.2.
    (timer,) = shard.push(1, at_s=1.4)
    assert isinstance(timer, SetTimer)
    assert timer.seconds == pytest.approx(1.6 * SLACK - 1.4, abs=1e-12)
    assert shard.push(2, at_s=1.5) == []
    assert shard.timer(0, at_s=1.6) == [Apply((0, 1, 2)), *releases(0, 1, 2)]
    assert shard.push(3, stamp=0, at_s=2.1) == dropped(3, "too late", 3)
    # The second version began at 1.6.
    assert shard.push(0, stamp=1, at_s=2.6) == []
    (timer,) = shard.push(1, stamp=1, at_s=2.5)
    took_s = [1.0, 1.4, 1.5, 2.1, 1.0, 0.9]
    middle = statistics.median(took_s)
    due_s = 1.6 + (middle + 2 * statistics.median([abs(t - middle) for t in took_s])) * SLACK
    assert isinstance(timer, SetTimer)
    assert timer.seconds == pytest.approx(due_s - 2.5, abs=1e-12)


def test_where_the_usual_time_is_over_the_quorum_is_enough() -> None:
    shard = Shard(tg.Quorum(3, grace_deviations=0.0), 4)
    shard.push(0, at_s=1.0)
    shard.push(1, at_s=1.0)
    assert shard.push(2, at_s=9.0) == [Apply((0, 1, 2)), *releases(0, 1, 2)]


def test_a_measured_grace_follows_speeds_that_change() -> None:
    """Only the last times of each worker count."""
    shard = Shard(tg.Quorum(2, grace_deviations=1.0), 3)
    now_s, waits = 0.0, []
    for version, took_s in enumerate([1.0] * 40 + [5.0] * 40):
        now_s += took_s
        shard.push(0, stamp=version, at_s=now_s)
        waits.append(isinstance(shard.push(1, stamp=version, at_s=now_s)[0], SetTimer))
        shard.push(2, stamp=version, at_s=now_s)
    assert all(waits[:40])
    assert not any(waits[40:44])
    assert all(waits[-40 + 16 :])


def test_gradients_are_counted_once_they_may_be_enough_and_not_each_time() -> None:
    """Else a round of many workers would take the square of their number."""
    shard, looked = Shard(tg.Quorum(200, grace_deviations=5.0), 300), 0

    class Watched(list[int]):
        def __iter__(self) -> Iterator[int]:
            nonlocal looked
            looked += 1
            return super().__iter__()

    assert isinstance(shard.half, GroupHalf)
    shard.half.waiting = Watched()
    for worker in range(299):
        shard.push(worker, at_s=10 + worker / 300)
    assert looked == 1


def test_constant_times_are_all_in_time() -> None:
    """However they round: the grace is for the usual time itself."""
    cluster = tg.Constant(workers=5, step_s=0.1)
    made = tg.schedule(tg.Quorum(2, grace_deviations=0.0), cluster, 200)
    assert not len(made.drop_row)


def test_a_straggler_is_left_behind_and_the_others_are_not() -> None:
    cluster = tg.Stragglers(workers=8, straggle=0.1, least_extra_s=10.0)
    made = tg.schedule(tg.Quorum(4, grace_deviations=5.0), cluster, 300)
    slow = made.end_s - made.start_s > 3 * np.nanmedian(made.end_s - made.start_s)
    late = np.zeros(made.rows, dtype=bool)
    late[made.drop_row] = True
    assert late[slow].mean() > 0.9
    began_s = np.concatenate([[0.0], made.group_time_s])[made.stamp]
    usual = ~slow & np.isfinite(made.end_s) & (made.start_s == began_s)  # not in its middle
    assert late[usual].mean() < 0.02


def test_a_quorum_of_all_is_sync_bit_for_bit() -> None:
    task = tg.FunctionTask(torch.ones(9), lambda view, worker, step: view * (worker + 0.3 * step))
    cluster = tg.Gamma(workers=4)
    ends = [
        tg.simulate(task, tg.rules.sgd(0.01, 0.9), policy=policy, cluster=cluster, updates=30)
        for policy in (tg.Sync(), tg.Quorum(4, weights="samples", grace_deviations=5.0))
    ]
    assert torch.equal(ends[0].params, ends[1].params)
    assert (ends[0].schedule.group_time_s == ends[1].schedule.group_time_s).all()


def test_weights_with_dana_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"Quorum lets some gradients .* Dana keeps numbers"):
        tg.simulate(
            tg.FunctionTask(torch.ones(2), lambda view, worker, step: view),
            tg.rules.dana(0.1),
            policy=tg.Quorum(2, weights="samples"),
            cluster=tg.Gamma(workers=2),
            updates=3,
        )


def test_under_dylu_rows_count_by_their_steps() -> None:
    """On two speeds: the slow worker's rows are of fewer steps, and count for less."""
    policy = tg.DyLU(tg.Quorum(2, weights="samples"))
    cluster = tg.Constant(2, (1.0, 4.0))
    made = tg.schedule(policy, cluster, 12, batches=8)
    assert policy.gives_weights
    assert made.weighted
    for group in range(made.groups):
        steps = made.steps[made.group(group)]
        each = made.weights(group) or (0.5, 0.5)
        assert each == pytest.approx(steps / steps.sum(), abs=1e-15)
    assert made.weights(11) == pytest.approx((8 / 10, 2 / 10))
