"""Studies are filled cell by cell: what has ended stays, what is there is not run again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tardigrad.reproduce import STUDIES
from tardigrad.reproduce.filling import fill, find, write_up
from tardigrad.reproduce.kept_cells import FoundCells, KeptCell, paired
from tests.reproduce.small_study import CELLS, STUDY, table


def filled(folder: Path, **how: Any) -> tuple[list[str], FoundCells]:
    """The names of the cells that were run, and all that are there."""
    names: list[str] = []
    found = fill(STUDY, folder, ended=lambda cell: names.append(cell.name), **how)
    return names, found


def test_a_second_call_runs_only_what_is_missing(tmp_path: Path) -> None:
    names, found = filled(tmp_path, only="lr=0.1/*")
    assert names == ["lr=0.1/seed=0", "lr=0.1/seed=1"]
    assert found.empty == ["lr=1e200/seed=0", "doubled"]
    before = (tmp_path / "cells/lr=0.1/seed=1.json").read_bytes()
    (tmp_path / "cells/lr=0.1/seed=0.json").unlink()
    names, found = filled(tmp_path)
    assert names == ["doubled", "lr=0.1/seed=0", "lr=1e200/seed=0"]
    assert found.empty == []
    assert (tmp_path / "cells/lr=0.1/seed=1.json").read_bytes() == before
    assert filled(tmp_path)[0] == []


def test_what_had_ended_stays_where_the_next_one_fails(tmp_path: Path) -> None:
    def stop(cell: KeptCell) -> None:
        if cell.name == "lr=0.1/seed=0":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(STUDY, tmp_path, ended=stop)
    assert set(find(STUDY, tmp_path).cells) == {"doubled", "lr=0.1/seed=0"}


def test_cells_in_processes_are_the_same(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    filled(one, only="lr=*")
    filled(two, only="lr=*", jobs=2)
    for cell in find(STUDY, one).cells.values():
        other = find(STUDY, two).cells[cell.name]
        timeless = [{**r, "wall_s": 0} for r in cell.records]
        assert timeless == [{**r, "wall_s": 0} for r in other.records]
        assert (cell.status, cell.figures) == (other.status, other.figures)


def test_a_cell_says_what_made_it_and_what_it_came_to(tmp_path: Path) -> None:
    _, found = filled(tmp_path, command="tardigrad reproduce small")
    cell = found.cells["lr=0.1/seed=1"]
    assert cell.made["command"] == "tardigrad reproduce small"
    assert {"machine", "versions", "commit", "code", "date", "wall_s"} <= set(cell.made)
    assert cell.asked == CELLS[1].asks
    assert [record["update"] for record in cell.records] == [0, 10, 20]
    assert cell.figures["validation_loss"] == cell.records[-1]["validation_loss"]
    assert found.cells["lr=1e200/seed=0"].diverged
    assert found.cells["doubled"].figures == {"twice": 42}
    assert (tmp_path / "picture.txt").read_text() == "42"


def test_the_table_tells_empty_and_diverged_cells(tmp_path: Path) -> None:
    assert table(find(STUDY, tmp_path)).rows == (("lr=0.1", "empty"), ("lr=1e200", "empty"))
    _, found = filled(tmp_path, only="lr=1e*")
    written = write_up(STUDY, found, tmp_path)
    assert written.rows == (("lr=0.1", "empty"), ("lr=1e200", "diverged"))
    assert written.notes[-1].startswith("empty: 3 of 4 cells (lr=0.1/seed=0, ")
    assert (tmp_path / "table.csv").read_text().splitlines()[1] == "lr=0.1,empty"
    _, found = filled(tmp_path, only="lr=0.1/*")
    values = found.values("lr=0.1", "validation_loss")
    assert len(values) == 2
    mean, spread = sum(values) / 2, abs(values[0] - values[1]) / 2**0.5
    assert found.text("lr=0.1", "validation_loss", digits=3) == f"{mean:.3f} ± {spread:.3f} (2)"


def test_differences_are_paired_by_seed() -> None:
    ends = {"a": (0.5, 0.7, 0.9), "b": (0.4, 0.5, 0.8, 0.1)}
    cells = {
        f"{stem}/seed={seed}": KeptCell(f"{stem}/seed={seed}", "finished", {}, {"x": value})
        for stem, values in ends.items()
        for seed, value in enumerate(values)
    }
    found = FoundCells("s", False, list(cells), cells)
    # 10, 20 and 10 points: 13.33 ± 4.303 · 5.774 / √3
    assert paired(found, "a", "b", "x", 0.1) == "+13.33 [-1.01, +27.68]"
    lost = {**cells, "b/seed=1": KeptCell("b/seed=1", "diverged", {}, {})}
    assert paired(FoundCells("s", False, list(cells), lost), "a", "b", "x", 0.1)[:6] == "+26.67"
    single = {name: cell for name, cell in cells.items() if name.endswith("seed=0")}
    assert paired(FoundCells("s", False, list(cells), single), "a", "b", "x", 0.1) == ""


def test_the_quick_form_is_kept_apart(tmp_path: Path) -> None:
    filled(tmp_path, quick=True)
    assert find(STUDY, tmp_path).cells == {}
    assert (tmp_path / "quick/cells/lr=0.1/seed=0.json").exists()
    assert len(find(STUDY, tmp_path, quick=True).cells) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no kept cell"),
        ("[]", "is no kept cell"),
        ('{"name": "a"}', "is no kept cell"),
        (
            '{"name": "lr=0.1/seed=1", "status": "finished", "asked": {}, "figures": {}}',
            "is not the cell lr=0.1/seed=0",
        ),
        (
            '{"name": "lr=0.1/seed=0", "status": "finished", "asked": {}, "figures": {}}',
            "was made of another experiment, which differs in cluster, ",
        ),
    ],
)
def test_a_spoiled_cell_is_told_with_its_file(text: str, told: str, tmp_path: Path) -> None:
    filled(tmp_path, only="lr=0.1/seed=0")
    path = tmp_path / "cells/lr=0.1/seed=0.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=told) as error:
        filled(tmp_path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_another_version_left_out_of_a_spec_does_not_matter(tmp_path: Path) -> None:
    """A cell is asked for what the study says, not for what a spec fills in."""
    filled(tmp_path, only="lr=0.1/seed=0")
    kept = json.loads((tmp_path / "cells/lr=0.1/seed=0.json").read_text())
    assert "shards" not in kept["asked"]


def test_names_and_options_that_are_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no cell of small is named 'x'"):
        filled(tmp_path, only="x")
    with pytest.raises(ValueError, match="small runs on the CPU alone"):
        filled(tmp_path, device="cuda")
    with pytest.raises(ValueError, match="small has no quick form"):
        replace(STUDY, quick=list).cells(True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_is_needed_only_for_what_is_missing(tmp_path: Path) -> None:
    filled(tmp_path)
    study = replace(STUDY, gpu={})
    assert fill(study, tmp_path, device="cuda").empty == []
    (tmp_path / "cells/lr=0.1/seed=0.json").unlink()
    with pytest.raises(ValueError, match="torch sees no GPU here"):
        fill(study, tmp_path, device="cuda")


def test_on_a_device_the_task_says_so() -> None:
    study = STUDIES["gap-aware-table4"]
    taken = study.on_device("cuda:0")
    assert taken == {"device": "cuda:0", "precision": "tf32", "channels_last": True}
    cell = study.cells(False)[0]
    task = {"name": "cifar10_resnet20", "batch_size": 128, "sampling": "epoch", "validation": 0}
    assert cell.asks["task"] == task  # so a cell of a GPU is a cell of a CPU
    assert cell.spec(taken).task == {**task, **taken}


@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_of_every_study_can_be_run(name: str) -> None:
    study = STUDIES[name]
    for quick in (False, True) if study.quick() else (False,):
        cells = study.cells(quick)
        for cell in cells:
            assert json.loads(json.dumps(cell.asks)) == cell.asks
        for cell in {len(c.asks): c for c in cells if c.measure is None}.values():
            cell.spec({})  # says what is wrong
        empty = FoundCells(name, quick, [cell.name for cell in cells], {})
        assert study.table(empty).rows
