"""A plan's choice is as good as training every candidate would find."""

import pytest

from tardigrad.bench.plan import bench_plan


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_what_is_chosen_is_within_a_tenth_of_the_best() -> None:
    """Three clusters, one of them a real trace, two tasks, up to 40 candidates, five seeds."""
    rows = bench_plan().data()["rows"]
    assert len(rows) == 6
    for row in rows:
        assert row["candidates"] <= 40
        assert row["chosen ÷ best"] <= 1.1, row
