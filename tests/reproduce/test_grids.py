"""Choosing a rate by one way for all, on cells whose figures are known."""

import math

import pytest

from tardigrad.reproduce.grids import best_at, edges, first_reaching, last, mean_score, told
from tardigrad.reproduce.kept_cells import FoundCells, KeptCell
from tests.reproduce.made_up import cells_of, run

ENDS = {
    "a/lr=0.1/seed=0": 3.0,
    "a/lr=0.1/seed=1": 5.0,
    "a/lr=1/seed=0": 1.0,
    "a/lr=1/seed=1": 6.0,
    "a/lr=10/seed=0": 0.5,
}


def found(lost: bool = True) -> FoundCells:
    cells = [run(name, [(10, 9.0), (20, end)]) for name, end in ENDS.items()]
    cells += [KeptCell("a/lr=10/seed=1", "diverged", {}, {})] if lost else []
    return cells_of(cells)


def test_the_best_rate_has_the_lowest_mean_and_none_that_diverged() -> None:
    rates = (0.1, 1, 10)
    assert best_at(found(), "a", rates, last("loss")) == "a/lr=1"
    assert best_at(found(lost=False), "a", rates, last("loss")) == "a/lr=10"
    assert best_at(found(), "a", rates, last("loss", highest=True)) == "a/lr=0.1"
    assert best_at(found(), "b", rates, last("loss")) is None
    never = first_reaching("loss", 0.1)
    assert best_at(found(), "a", rates, never) == "a/lr=0.1"
    assert best_at(found(), "a", rates, never, last("loss")) == "a/lr=1"
    assert edges(found(), ["a/lr=0.1", "b/lr=1", None, "c/lr=10"], rates) == (
        "at an edge of the grid: a/lr=0.1, c/lr=10"
    )
    assert edges(found(), ["b/lr=1", None], rates) == ""
    assert edges(cells_of([], quick=True), ["a/lr=0.1"], rates) == ""


def test_what_is_told_of_seeds() -> None:
    score = last("loss")
    assert told(found(), "a/lr=0.1", score, 1) == "4.0 ± 1.4"
    assert told(found(), "a/lr=10", score, 1) == "0.5 (1 of 2)"
    assert told(found(), "a/lr=7", score) == told(found(), None, score) == "empty"
    assert mean_score(found(), "a/lr=0.1", score) == 4.0
    assert mean_score(found(), "a/lr=10", score) == mean_score(found(), None, score) == math.inf


@pytest.mark.parametrize(
    ("target", "highest", "at"),
    [(2.0, False, 30.0), (5.0, False, 20.0), (0.5, False, math.inf), (8.0, True, 10.0)],
)
def test_the_first_evaluation_that_reaches_a_target(
    target: float, highest: bool, at: float
) -> None:
    cell = run("a", [(10, 8.0), (20, 4.0), (30, 2.0), (40, 3.0)])
    assert first_reaching("loss", target, highest=highest)(cell) == at
    lost = KeptCell("a", "diverged", {}, {})
    assert first_reaching("loss", target, highest=highest)(lost) == math.inf


def test_what_never_came_there_is_told() -> None:
    cells = [run(f"a/lr=1/seed={i}", [(10.0, end)]) for i, end in enumerate((1.0, 9.0, 1.0))]
    reaching = first_reaching("loss", 2.0)
    assert told(cells_of(cells), "a/lr=1", reaching) == "10 ± 0 (2 of 3)"
    assert told(cells_of(cells), "a/lr=1", first_reaching("loss", 0.5)) == "never"
