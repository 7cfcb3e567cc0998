"""The benchmark of round trips on Ray, in its smallest form: every way does the same work."""

import os
from pathlib import Path

import pytest
import torch

from tardigrad.bench.ray import bench_ray, to_target
from tardigrad.tasks import Data, ModuleTask, Split
from tardigrad.tasks.mnist import mlp
from tardigrad.tasks.module import initialised

SRC = str(Path(__file__).parents[2] / "src")


@pytest.fixture(autouse=True)
def _actors_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([SRC, os.environ.get("PYTHONPATH", "")]))


@pytest.mark.parametrize(("nodes", "workers"), [(1, [1, 2]), (2, [1])])
def test_the_table_holds_together(nodes: int, workers: list[int]) -> None:
    found = bench_ray(sizes=[1000], workers=workers, nodes=[nodes], repeats=1, slice_s=0.05)
    rows = found.data()["rows"]
    assert [(row["nodes"], row["workers"]) for row in rows] == [(nodes, w) for w in workers]
    for row in rows:
        for other in ("actor", "gloo"):
            assert row[other] > 0
            assert row[f"tardigrad ÷ {other}"] == pytest.approx(row["tardigrad"] / row[other])


@pytest.mark.parametrize("wrong", [{"sizes": [0]}, {"workers": [0]}, {"nodes": [3]}])
def test_sizes_and_workers_are_counts(wrong: dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        bench_ray(**wrong)  # type: ignore[arg-type]


def test_time_to_a_target_is_told_for_both_ways() -> None:
    """Any loss will do: both ways get there at their first evaluation, after 40 gradients."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (64, 1, 28, 28), generator=draw, dtype=torch.uint8)
    split = Split(images, torch.randint(0, 10, (64,), generator=draw))
    module = initialised(lambda: mlp(200, "mnist"), 0)
    task = ModuleTask(module, "nll", Data(split, split), 8, dtype="float32")
    found = to_target(task, target=100.0, rates=[0.01], step_s=0.01, most=44)
    ((_, ours, theirs),) = found.rows
    # 10 steps at the slow worker's pace, 50 ms; 3 workers out of 4 need not wait for it.
    assert isinstance(ours, float)
    assert isinstance(theirs, float)
    assert theirs >= 0.5
    assert ours >= 40 / 320
    assert f"{theirs / ours:.2f} times faster" in found.notes[0]
