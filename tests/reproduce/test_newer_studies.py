"""Studies of newer methods: their small forms run, tables and sentences say what cells say."""

import math
from pathlib import Path

import numpy as np
import pytest

from tardigrad.experiment import Spec
from tardigrad.reproduce import async_diloco, compression, federated, time_to_target
from tardigrad.reproduce.filling import fill, find, write_up
from tardigrad.reproduce.kept_cells import KeptCell
from tardigrad.reproduce.newer import NEWER
from tardigrad.reproduce.study import Study
from tests.reproduce.made_up import cells_of, run

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
KEPT = [study for study in NEWER if (RESULTS / study.name).exists()]
by_name = pytest.mark.parametrize("study", NEWER, ids=lambda study: study.name)


@by_name
def test_the_quick_form_is_seconds_and_is_gone_on_with(study: Study, tmp_path: Path) -> None:
    first = study.cells(quick=True)[0].name
    fill(study, tmp_path, quick=True, only=first)
    ended: list[str] = []
    found = fill(study, tmp_path, quick=True, ended=lambda cell: ended.append(cell.name))
    assert set(ended) == {cell.name for cell in study.cells(quick=True)} - {first}
    table = write_up(study, found, tmp_path)
    assert not any("empty" in str(cell) for row in table.rows for cell in row)
    assert [path.exists() for path in table.figures] == [True]
    said = [note.partition(" ")[0].rstrip(":,") for note in table.notes]
    assert {"expected", "found"} <= set(said)


@by_name
def test_every_cell_has_three_seeds_and_differs_in_nothing_else(study: Study) -> None:
    asked: dict[str, list[dict[str, object]]] = {}
    for cell in study.cells(quick=False):
        stem = cell.name.rpartition("/seed=")[0]
        asked.setdefault(stem, []).append({**cell.asks, "seed": None})
    assert all(len(same) == 3 and same[0] == same[1] == same[2] for same in asked.values())


@by_name
def test_what_is_not_there_is_told_as_such(study: Study) -> None:
    notes = study.table(find(study, Path("nowhere"))).notes
    assert "found: not all cells are there yet" in notes


@pytest.mark.parametrize("study", KEPT, ids=lambda study: study.name)
def test_the_page_says_what_the_kept_cells_say(study: Study) -> None:
    """Else copy the notes of `tardigrad reproduce NAME` into docs/studies.md."""
    page = " ".join((ROOT / "docs/studies.md").read_text(encoding="utf-8").split())
    found = find(study, RESULTS / study.name)
    assert not found.empty
    for note in study.table(found).notes:
        assert note in page
    assert f"`{study.command(quick=False)}" in page
    assert (RESULTS / study.name / f"{study.name}.png").exists()


def test_of_federated_methods_the_one_that_is_sooner_is_told() -> None:
    ends = {"FedAvg": (60, 0.9), "FedBuff": (20, 0.95), "FedAsync": (40, 0.7)}
    cells: list[KeptCell] = []
    for shares in federated.SHARES:
        for method, (at, end) in ends.items():
            end = 0.96 if shares == "equal" else end
            points = [(at, end), (100, end)]
            cells += [
                run(f"{shares}/{method}/lr={rate:g}/seed={seed}", points, "validation_accuracy")
                for rate in federated.RATES[method]
                for seed in range(3)
            ]
    table = federated.federated.table(cells_of(cells))
    assert table.rows[4] == ("skewed", "FedBuff", 0.3, "95.00 ± 0.00 (3)", "20 ± 0")
    assert table.rows[5] == ("skewed", "FedAsync", 0.3, "70.00 ± 0.00 (3)", "never")
    assert table.notes[-1] == (
        "found: with skewed shares FedBuff is at 85% before FedAvg (seconds: FedAvg 60 ± 0, "
        "FedBuff 20 ± 0, FedAsync never); skew costs FedAsync most (points: FedAvg 6.0, "
        "FedBuff 1.0, FedAsync 26.0)"
    )


def test_equal_work_is_read_between_evaluations() -> None:
    """Sync sees 100 samples in 100 s; the others four times as many."""
    cells = []
    for name in async_diloco.METHODS:
        each = 1 if name == async_diloco.SYNC else 4
        for rate in async_diloco.RATES:
            points = [(0, 4.0), (50, 3.0), (100, 2.0 + rate)]
            for seed in range(3):
                cell = f"{name}/lr={rate:g}/seed={seed}"
                bytes_ = {"push_bytes": 1e4, "pull_bytes": 3e4}
                cells.append(run(cell, points, async_diloco.LOSS, samples=each, **bytes_))
    rows = {row[0]: row[1:] for row in async_diloco.async_diloco.table(cells_of(cells)).rows}
    assert rows[async_diloco.SYNC] == (0.01, "2.010 ± 0.000", "2.010 ± 0.000", 100, "4.0 ± 0.0")
    assert rows[async_diloco.ASYNC] == (0.01, "2.010 ± 0.000", "3.500 ± 0.000", 400, "4.0 ± 0.0")
    assert async_diloco.after(401)(cells[-1]) == math.inf


def test_where_speeds_change_there_are_always_sixteen_workers() -> None:
    asked = time_to_target.cluster("changing", 300.0)
    cell = next(c for c in time_to_target.time_to_target.cells(False) if "changing" in c.name)
    cluster = Spec.of(cell.asks).make_cluster()
    assert len(asked["step_s"]) == cluster.workers
    for at in np.arange(0.5, 359.0, 1.0):
        away = {a["worker"] for a in asked["absences"] if a["leaves_s"] <= at < a["returns_s"]}
        there = [s for worker, s in enumerate(asked["step_s"]) if worker not in away]
        assert len(there) == time_to_target.WORKERS
        slow = sum(s > 10 for s in there)
        assert slow == (12 if int(at // time_to_target.PHASE_S) % 2 else 0)


def test_times_to_the_target_are_told_in_their_order() -> None:
    took = dict(zip(time_to_target.METHODS, (math.inf, 40, 30, 20, 50, 60, 70, 80), strict=False))
    cells = []
    for where in time_to_target.CLUSTERS:
        for name, at in took.items():
            for rate in time_to_target.RATES:
                good = rate == 0.04 and math.isfinite(at)
                points = [(10, 5.0), (at if good else 90, 0.004 if good else 1.0)]
                for seed in range(3):
                    cell = f"{where}/{name}/lr={rate:g}/seed={seed}"
                    cells.append(run(cell, points, time_to_target.LOSS))
    table = time_to_target.time_to_target.table(cells_of(cells))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["ASGD"] == ("40 ± 0", 0.04, "40 ± 0", 0.04)
    assert rows["sync"] == ("never", None, "never", None)
    assert "one slow: Ringmaster 20 ± 0, delay-adaptive 30 ± 0, ASGD 40 ± 0" in table.notes[-1]
    assert "sync never" in table.notes[-1]
    assert "at an edge" not in table.notes[0]


def test_of_codecs_bytes_and_losses_stand_beside_the_plain_run() -> None:
    """Ten times fewer bytes; without feedback a loss twice as high."""
    cells = []
    for name in compression.forms():
        plain, lossy = name == compression.PLAIN, name.endswith("without")
        for rate in compression.RATES:
            ends = (0.8 if lossy else 0.4) + (0.1 if rate != 0.04 else 0.0)
            for seed in range(3):
                one = run(
                    f"{name}/lr={rate:g}/seed={seed}",
                    [(0, 2.0), (100, ends)],
                    compression.LOSS,
                    push_bytes=2e5 if plain else 2e4,
                    validation_accuracy=0.009,
                )
                cells.append(one)
    table = compression.compression.table(cells_of(cells))
    rows = {row[0]: row[1:] for row in table.rows}
    figures = ("0.400 ± 0.000", "90.00 ± 0.00 (3)")
    assert rows["plain"] == (0.04, *figures, "20.0 ± 0.0", 1.0)
    assert rows["int8, with feedback"] == (0.04, *figures, "2.0 ± 0.0", 10.0)
    assert table.notes[-1] == (
        "found, as times the plain run's loss of 0.400: int8 near only with feedback (1.00 with "
        "feedback, 2.00 without); top-k 10% near only with feedback (1.00 with feedback, 2.00 "
        "without); top-k 1% near only with feedback (1.00 with feedback, 2.00 without)"
    )


def test_a_run_that_was_lost_does_not_count_though_it_came_back() -> None:
    points = [(0, 10.0), (10, 90.0), (20, 0.001)]
    assert time_to_target.reaching(run("a", points, time_to_target.LOSS)) == 20
    points[1] = (10, 101.0)
    assert time_to_target.reaching(run("a", points, time_to_target.LOSS)) == math.inf


def test_what_comes_after_the_time_is_up_does_not_count() -> None:
    until = time_to_target.UNTIL_S
    for at, reached in ((until, until), (until + 1, math.inf)):
        cell = run("a", [(0, 10.0), (at, 0.001)], time_to_target.LOSS)
        assert time_to_target.reaching(cell) == reached
