"""Look-ahead batches: whatever a window applies has been computed, from views that existed."""

from collections.abc import Callable

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.engine.fast.batches import Batches, just_in_time, look_ahead, ready_at
from tardigrad.scheduling import Schedule

CASES = {
    "gamma": (tg.Async(), tg.Gamma(workers=12), 1),
    "heterogeneous": (tg.Async(), tg.Gamma(workers=12, heterogeneous=True), 1),
    "uniform": (tg.Async(), tg.Dispatcher(workers=12), 1),
    "no wait": (tg.Async(wait=False), tg.Gamma(workers=5), 1),
    "shards": (tg.Async(), tg.Gamma(workers=6), 3),
    "sync": (tg.Sync(), tg.Gamma(workers=6), 2),
    "backup": (tg.Backup(backups=2), tg.Gamma(workers=8, heterogeneous=True), 1),
}


PLANS: dict[str, Callable[[Schedule], Batches]] = {
    "all": look_ahead,
    "next by 1": lambda schedule: just_in_time(schedule, 1),
    "next by 5": lambda schedule: just_in_time(schedule, 5),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("plan", PLANS)
def test_windows_have_what_they_need(name: str, plan: str) -> None:
    policy, cluster, shards = CASES[name]
    schedule = tg.schedule(policy, cluster, updates=200, seed=1, shards=shards)
    batches, ready = PLANS[plan](schedule), ready_at(schedule)
    computed: set[int] = set()
    for b in range(batches.count):
        rows = batches.of(b).tolist()
        assert plan.startswith("all") or len(rows) <= int(plan[-1])
        assert all(ready[row] <= batches.window[b] for row in rows)
        assert not computed & set(rows)
        computed |= set(rows)
        for group in range(batches.window[b], batches.window[b + 1]):
            assert set(schedule.group(group).tolist()) <= computed
    assert batches.window[-1] == schedule.groups
    assert computed == set(schedule.group_rows.tolist())


def test_just_in_time_keeps_no_gradient_waiting() -> None:
    schedule = tg.schedule(tg.Async(), tg.Dispatcher(workers=12), updates=500)
    batches = just_in_time(schedule, 8)
    assert np.array_equal(batches.rows, schedule.group_rows)
    assert np.array_equal(batches.start, batches.window)


def test_windows_follow_the_schedule() -> None:
    """Gamma times let nearly all workers be computed together, a uniform draw about √(πN/2)."""
    gamma = look_ahead(tg.schedule(tg.Async(), tg.Gamma(workers=128), updates=20_000))
    uniform = look_ahead(tg.schedule(tg.Async(), tg.Dispatcher(workers=128), updates=20_000))
    assert 0.8 * 128 < np.diff(gamma.window).mean() <= 128
    birthday = np.sqrt(np.pi * 128 / 2)
    assert 0.9 * birthday < np.diff(uniform.window).mean() < 1.1 * birthday


def test_the_first_batch_is_cut_to_the_largest_after_it() -> None:
    schedule = tg.schedule(tg.Async(), tg.Dispatcher(workers=128), updates=2000)
    batches = look_ahead(schedule)
    pieces = int((batches.window == 0).sum())
    sizes = np.diff(batches.start)
    first, later = sizes[:pieces], sizes[pieces:]
    most = int(later.max())
    # Whoever is ready at the start is in a piece, and only the last piece is not full.
    assert first.sum() == 128 > most
    assert first[:-1].tolist() == [most] * (pieces - 1)
    assert 0 < first[-1] <= most
    assert batches.window[pieces] > 0


def test_batches_of_a_synchronous_round_are_the_round() -> None:
    batches = look_ahead(tg.schedule(tg.Sync(), tg.Gamma(workers=4), updates=10))
    assert np.diff(batches.start).tolist() == [4] * 10
    assert batches.window.tolist() == list(range(11))
