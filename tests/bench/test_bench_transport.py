"""The benchmark of the transport, in its smallest form: every way does the same work."""

import multiprocessing

import pytest

from tardigrad.bench.transport import bench_transport


def test_the_table_holds_together() -> None:
    found = bench_transport(sizes=[1000, 200_000], repeats=1, slice_s=0.05)
    rows = found.data()["rows"]
    assert [row["parameters"] for row in rows] == ["1,000", "200,000"]
    for row in rows:
        for other in ("gloo", "memcpy"):
            assert row[other] > 0
            assert row[f"tardigrad ÷ {other}"] == pytest.approx(row["tardigrad"] / row[other])
        assert row["tardigrad"] < row["memcpy"]
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("wrong", [{"sizes": [0]}, {"repeats": 0}])
def test_sizes_and_repeats_are_counts(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        bench_transport(**wrong)  # type: ignore[arg-type]
