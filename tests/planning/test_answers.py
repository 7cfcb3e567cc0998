"""What a plan says of how its race ended: each sentence is true of the race it is about."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tardigrad.clusters import Constant
from tardigrad.planning.answer import Priced, TargetResults
from tardigrad.planning.answer_figure import answer_figure
from tardigrad.planning.race import race
from tardigrad.planning.trial import WallBudget
from tests.planning.drawn_curves import Evaluations, drawn

AMPLE = WallBudget(math.inf)


def answered(slowness: dict[float, float], seeds: int = 3, **more: Any) -> TargetResults:
    training, candidates = drawn(slowness, own_noise=0.0, **more)
    return TargetResults(
        training.target, (Priced(training.cluster, race(training, candidates, seeds, AMPLE)),)
    )


def test_a_former_leader_that_missed_the_target_is_said_to_have_missed_it() -> None:
    """It was faster with the first seed; what it would have taken with the second is not known."""
    answer = answered({1.0: 3.0, 2.0: 4.0}, luck={(1.0, 1): 1000.0})
    assert answer.winner.candidate.factor == 2.0
    assert "The next, Async, sgd, lr 1, missed the target with 1 of 2 seeds." in answer.why()


def test_who_is_out_is_not_called_alike() -> None:
    """Others are undecided, and it is not."""
    training, candidates = drawn({1.0: 1.0, 2.0: 1.9, 3.0: 1.2, 4.0: 1.3}, own_noise=0.0)
    found = race(training, candidates, 3, AMPLE)
    for enough in range(0, len(training.evaluations), 5):
        again, candidates = drawn({1.0: 1.0, 2.0: 1.9, 3.0: 1.2, 4.0: 1.3}, own_noise=0.0)
        try:
            found = race(again, candidates, 3, Evaluations(again, enough))
        except ValueError:
            continue
        said = TargetResults(again.target, (Priced(again.cluster, found),)).why()
        others = [e for e in found.entrants[1:] if e.reached]
        alike = "could not tell them apart" in said or "too few to call it slower" in said
        assert not alike or any(not e.out for e in others)
        assert "-" not in said.partition("took ")[2].partition("%")[0]


def test_the_others_of_the_winners_seeds_are_told_where_it_missed_some() -> None:
    """Nobody else was near with the first seed, so nobody else had the others."""
    answer = answered({1.0: 3.0, 2.0: 30.0}, luck={(1.0, 2): 1000.0})
    said = answer.why()
    assert "s with 2 of 3 seeds" in said
    assert "It missed the target with the others: an easier target is safer." in said
    assert not answer.best.race.clear
    assert answer.data()["clear"] is False


def test_diverging_is_not_taken_for_being_fast() -> None:
    """With the second seed one diverges at once and one is never there: both miss it."""
    training, candidates = drawn({1.0: 3.0, 2.0: 2.9}, own_noise=0.0, luck={(1.0, 1): 1000.0})
    training.breaks = {(2.0, 1)}
    found = race(training, candidates, 2, AMPLE)
    diverged = next(e for e in found.entrants if e.candidate.factor == 2.0)
    assert diverged.trials[1].diverged
    assert diverged.total_s > training.horizon_s
    assert not found.clear
    assert [e.out for e in found.entrants] == ["", ""]


@pytest.mark.parametrize("most", [1850, 2000, 2200, 4000])
def test_what_the_table_does_not_show_adds_up(most: int) -> None:
    training, candidates = drawn({float(i): 3.0 + 0.5 * i for i in range(1, 31)} | {50.0: math.inf})
    found = race(training, candidates, 2, Evaluations(training, most))
    answer = TargetResults(training.target, (Priced(training.cluster, found),))
    table = answer.table()
    numbers = [note for note in table.notes if note.startswith("not shown: ")]
    hidden = sum(int(part.split()[0]) for part in numbers[0][11:].split(", ")) if numbers else 0
    assert len(table.rows) + hidden == 31
    begun = {(which, seed) for which, seed, _ in training.evaluations}
    assert table.notes[0].startswith(f"31 candidates, {len(begun)} runs in")


def test_a_budget_that_ends_before_anything_was_measured_is_not_called_divergence() -> None:
    training, candidates = drawn({1.0: 3.0})
    with pytest.raises(ValueError, match="none was measured even once; give a larger --budget"):
        race(training, candidates, 1, Evaluations(training, 0))


def test_sizes_that_came_to_nothing_are_told_and_what_is_open_is_not_clear() -> None:
    training, candidates = drawn({1.0: 3.0, 2.0: 30.0})
    found = Priced(training.cluster, race(training, candidates, 1, AMPLE))
    answer = TargetResults(training.target, (found,), None, (2,), ((3, "nobody arrived"),))
    assert "With 3 workers, nobody arrived." in answer.why()
    assert answer.data()["in_vain"] == {"3": "nobody arrived"}
    assert answer.data()["clear"] is False


def test_the_marks_of_the_fastest_and_the_cheapest_do_not_lie_over_each_other() -> None:
    found = []
    for workers in (4, 3):
        training, candidates = drawn({1.0: 3.0 if workers == 4 else 3.01, 2.0: 30.0})
        found.append(Priced(Constant(workers=workers), race(training, candidates, 1, AMPLE)))
        for entrant in found[-1].race.entrants:
            entrant.candidate = replace(entrant.candidate, workers=workers)
    figure = answer_figure(TargetResults(training.target, tuple(found)), "t")
    figure.canvas.draw()
    words = {t.get_text().split(":")[0]: t.get_window_extent() for t in figure.axes[0].texts}
    assert not words["fastest"].overlaps(words["cheapest"])
