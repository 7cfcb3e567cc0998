"""A sweep's points as one run: what they come to one after another, and a line that says so."""

import importlib
from pathlib import Path

import pytest

from tardigrad.engine.fast import build_stack
from tardigrad.experiment import Outcome, execute_cells, points, read_toml
from tardigrad.experiment.sweep import cells_of
from tests.engine.eager_graphs import eager  # noqa: F401

SPEC = """
updates = 60
evaluate_every = 20
engine = "fast"
[task]
name = "logistic_regression"
dtype = "float64"
[rule]
name = "gap_aware"
lr = 0.05
[cluster]
name = "gamma"
workers = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "swept.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def as_if_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("tardigrad.experiment.side_by_side")
    monkeypatch.setattr(module, "may_stack", lambda spec: spec.engine != "exact")


def done(file: Path, *axes: str) -> tuple[list[Outcome], list[str]]:
    said: list[str] = []
    found = list(execute_cells(cells_of(points(read_toml(file), axes)), jobs=1, say=said.append))
    return found, said


def by_point(found: list[Outcome]) -> dict[str, Outcome]:
    return {str(outcome.point): outcome for outcome in found}


@pytest.mark.usefixtures("eager", "as_if_on_a_gpu")
def test_stacked_points_come_to_what_single_ones_do(file: Path) -> None:
    axes = ("rule.lr=[0.01,0.1]", "rule.name=[gap_aware,fasgd,sgd]", "seed=[0,3]")
    stacked, said = done(file, *axes)
    # Points with another seed of the whole have another schedule: two stacks.
    assert (
        said
        == [
            "6 runs share a schedule and a model: stacked on the GPU, 6 at a time",
        ]
        * 2
    )
    alone, said = done(file, *axes, "engine=exact")
    assert said == ["12 runs one after another"]
    assert len(stacked) == len(alone) == 12
    for name, outcome in by_point(alone).items():
        mine = by_point(stacked)[name]
        assert (mine.label, mine.seed) == (outcome.label, outcome.seed)
        assert mine.summary["status"] == "finished"
        assert mine.summary["mean_delay"] == outcome.summary["mean_delay"]
        for one, other in zip(mine.records, outcome.records, strict=True):
            for key in one.keys() - {"wall_s"}:
                assert one[key] == pytest.approx(other[key], rel=1e-9), key


@pytest.mark.usefixtures("eager", "as_if_on_a_gpu")
def test_a_stack_is_cut_to_what_memory_holds(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_stack, "stacked_bytes", lambda *of: 2**30)
    axes = ("rule.lr=[0.01,0.02,0.03,0.04,0.05]",)
    found, said = done(file, *axes, "memory_gib=3.5")
    assert said == ["5 runs share a schedule and a model: stacked on the GPU, 3 at a time"]
    assert [outcome.point["rule.lr"] for outcome in found] == [0.01, 0.02, 0.03, 0.04, 0.05]
    _, said = done(file, *axes, "memory_gib=1.5")
    assert said == ["5 runs one after another: the GPU's memory holds one of them at a time"]


@pytest.mark.usefixtures("eager", "as_if_on_a_gpu")
@pytest.mark.parametrize(
    ("axes", "why"),
    [
        (("task.seed=[0,1]",), "the tasks differ in training data"),
        (("rule.lr=[0.1,0.2]", "engine=auto"), "60 gradients are done sooner than compiling"),
        (("rule.lr=[0.1,0.2]", "policy=sync"), "its updates apply groups of gradients"),
        (("rule.per=[layer,parameter]",), "no kernel for the rule"),
    ],
)
def test_what_cannot_be_stacked_runs_one_after_another(
    file: Path, axes: tuple[str, ...], why: str
) -> None:
    found, said = done(file, *axes)
    assert [outcome.summary["status"] for outcome in found] == ["finished"] * 2
    assert len(said) == 1
    assert said[0].startswith(f"2 runs one after another: {why}")


@pytest.mark.usefixtures("eager", "as_if_on_a_gpu")
def test_a_point_that_diverges_is_told_beside_those_that_do_not(file: Path) -> None:
    found, said = done(file, "rule.name=sgd", "rule.weight_decay=1.0", "rule.lr=[1e200,0.1]")
    assert said[0].startswith("2 runs share")
    bad, good = found
    assert (bad.summary["status"], bad.records) == ("diverged", [])
    assert bad.summary["why"].startswith("the loss became nan")
    assert good.summary["status"] == "finished"
    assert len(good.records) == 4
