"""The benchmark of round trips on Ray, in its smallest form: every way does the same work."""

import os
from pathlib import Path

import pytest

from tardigrad.bench.ray import bench_ray

SRC = str(Path(__file__).parents[2] / "src")


def test_the_table_holds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SRC, os.environ.get("PYTHONPATH", "")]))
    found = bench_ray(sizes=[1000], workers=[1, 2], repeats=1, slice_s=0.05)
    rows = found.data()["rows"]
    assert [row["workers"] for row in rows] == [1, 2]
    for row in rows:
        for other in ("actor", "gloo"):
            assert row[other] > 0
            assert row[f"tardigrad ÷ {other}"] == pytest.approx(row["tardigrad"] / row[other])


@pytest.mark.parametrize("wrong", [{"sizes": [0]}, {"workers": [0]}])
def test_sizes_and_workers_are_counts(wrong: dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        bench_ray(**wrong)  # type: ignore[arg-type]
