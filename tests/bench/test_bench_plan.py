"""A plan's choice is as good as training every candidate would find."""

import pytest

from tardigrad.bench.plan import FRESH, SEEDS, TUNED_ON, bench_plan


def test_fresh_cases_are_other_cases() -> None:
    """No cluster, task, target or seed is one of those that the race was tuned on."""
    assert len(FRESH.clusters) == len(TUNED_ON.clusters) == 3
    assert FRESH.tasks.keys() == TUNED_ON.tasks.keys()
    assert not [c for c in FRESH.clusters.values() if c in TUNED_ON.clusters.values()]
    for name, case in FRESH.tasks.items():
        tuned = TUNED_ON.tasks[name]
        assert case.task != tuned.task
        assert case.lr != tuned.lr
        assert case.target != tuned.target
    seeds = [set(range(c.seed, c.seed + SEEDS)) for c in (FRESH, TUNED_ON)]
    assert not seeds[0] & seeds[1]


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_what_is_chosen_is_within_a_tenth_of_the_best() -> None:
    """Three clusters, one of them a real trace, two tasks, up to 40 candidates, five seeds."""
    rows = bench_plan().data()["rows"]
    assert len(rows) == 6
    for row in rows:
        assert row["candidates"] <= 40
        assert row["chosen ÷ best"] <= 1.1, row
