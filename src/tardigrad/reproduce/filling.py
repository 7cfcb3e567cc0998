"""Running the cells of a study that are not there yet, and keeping each as it ends."""

import fnmatch
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.run import Say
from tardigrad.experiment import Outcome, RunCell
from tardigrad.experiment.side_by_side import execute_cells
from tardigrad.reproduce.kept_cells import (
    FoundCells,
    KeptCell,
    cell_file,
    form_folder,
    keep,
    read_cell,
)
from tardigrad.reproduce.made_by import made_by
from tardigrad.reproduce.study import Study, StudyCell
from tardigrad.tasks.precision import device_of

FACTS = ("workers", "updates", "gradients", "time_s", "mean_delay", "dropped")
"""Of a run's schedule, kept beside its last evaluation."""
BYTES = ("push_bytes", "pull_bytes")
"""How figures of traffic begin: kept of the last evaluation alone."""


def find(study: Study, folder: Path, quick: bool = False) -> FoundCells:
    """The cells that are there."""
    planned = study.cells(quick)
    there = {}
    for cell in planned:
        path = cell_file(folder, quick, cell.name)
        if path.exists():
            there[cell.name] = read_cell(path, cell.name, cell.asks)
    return FoundCells(study.name, quick, [cell.name for cell in planned], there)


def fill(
    study: Study,
    folder: Path,
    quick: bool = False,
    device: str = "cpu",
    only: str = "*",
    jobs: int = 1,
    command: str = "",
    say: Say | None = None,
    ended: Callable[[KeptCell], None] | None = None,
) -> FoundCells:
    """Run what is missing of the cells whose names match `only`; all that are there then.

    Each is kept in the folder as it ends, so that a call that was stopped is gone on with by
    calling again. `say` is told how they are run, `ended` each that has ended.
    """
    planned = study.cells(quick)
    wanted = [cell for cell in planned if fnmatch.fnmatchcase(cell.name, only)]
    require(
        bool(wanted),
        f"no cell of {study.name} is named {only!r}: they are such as {planned[0].name!r} and "
        f"{planned[-1].name!r}",
    )
    on_device = study.on_device(device)
    there = find(study, folder, quick)
    missing = [cell for cell in wanted if cell.name not in there.cells]
    say = say or (lambda line: None)
    if len(missing) < len(wanted):
        say(f"{len(wanted) - len(missing)} of {len(wanted)} cells are there already")
    if not missing:
        return there
    device_of(device)  # before anything asks the device what it is
    made = made_by(device, command)
    runs = [cell for cell in missing if cell.measure is None]
    ways = (
        _measured([cell for cell in missing if cell.measure is not None], folder, quick),
        _ran(runs, {cell.name: cell.spec(on_device) for cell in runs}, jobs, say),
    )
    for way in ways:
        with closing(way) as found:
            for kept, wall_s in found:
                whole = KeptCell(**{**vars(kept), "made": {**made, "wall_s": wall_s}})
                keep(folder, quick, whole)
                if ended is not None:
                    ended(whole)
    return find(study, folder, quick)


_EndedCell = tuple[KeptCell, float | None]
"""A cell, and the seconds it took where they are known."""


def _measured(
    cells: Sequence[StudyCell], folder: Path, quick: bool
) -> Generator[_EndedCell, None, None]:
    place = form_folder(folder, quick)
    place.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        assert cell.measure is not None
        started = time.perf_counter()
        figures = cell.measure(place, **cell.asks)
        yield (
            KeptCell(cell.name, "finished", cell.asks, figures),
            round(time.perf_counter() - started, 1),
        )


def _ran(
    cells: Sequence[StudyCell], specs: dict[str, Any], jobs: int, say: Say
) -> Generator[_EndedCell, None, None]:
    if not cells:
        return
    by_name = {cell.name: cell for cell in cells}
    runs = [RunCell(cell.name, specs[cell.name], place) for place, cell in enumerate(cells)]
    with closing(execute_cells(runs, jobs, say)) as outcomes:
        for outcome in outcomes:
            yield _kept(by_name[outcome.label], outcome), outcome.summary.get("wall_s")


def _kept(cell: StudyCell, outcome: Outcome) -> KeptCell:
    summary = outcome.summary
    figures = {name: summary[name] for name in FACTS if name in summary}
    if summary["status"] == "diverged":
        figures |= {"why": summary["why"], "at": summary["at"]}
        return KeptCell(cell.name, "diverged", cell.asks, figures)
    figures |= {**summary["final"], "engine": summary.get("provenance", {}).get("engine")}
    linked = cell.asks.get("link")
    records = [
        {name: value for name, value in record.items() if linked or not name.startswith(BYTES)}
        for record in outcome.records
    ]
    return KeptCell(cell.name, "finished", cell.asks, figures, records)


def write_up(study: Study, found: FoundCells, folder: Path) -> ResultTable:
    """The table and the figures of the cells that are there, in the folder of their form."""
    place = form_folder(folder, found.quick)
    place.mkdir(parents=True, exist_ok=True)
    table = study.table(found)
    figures = tuple(study.draw(found, place)) if study.draw and found.cells else ()
    notes = [*table.notes, told_empty(found)]
    if found.quick:
        notes.append("the quick form: it shows the direction, not the paper's figures")
    whole = ResultTable(
        table.title, table.columns, table.rows, tuple(filter(None, notes)), figures, table.keys
    )
    whole.save_csv(place / "table.csv")
    return whole


def told_empty(found: FoundCells) -> str:
    """Which cells are empty, in a line; nothing where none is."""
    empty = found.empty
    if not empty:
        return ""
    few = ", ".join(empty[:4]) + (f" and {len(empty) - 4} more" if len(empty) > 4 else "")
    return f"empty: {len(empty)} of {len(found.planned)} cells ({few})"
