"""Studies that are one measurement: a function that makes a table and draws its figures."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tardigrad.core.result_table import ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.study import Study, StudyCell

WHOLE = "whole"


def tabled(
    name: str,
    about: str,
    function: Callable[..., ResultTable],
    quick: Mapping[str, Plain] | None = None,
    **full: Plain,
) -> Study:
    """`function(folder, **arguments)` as a study of one cell; `quick`: its arguments in small."""
    measure = partial(_rows_of, function)
    return Study(
        name,
        about,
        lambda: [StudyCell(WHOLE, full, measure)],
        lambda: [] if quick is None else [StudyCell(WHOLE, quick, measure)],
        partial(_table, about),
        lambda found, folder: sorted(folder.glob("*.png")),  # drawn when it was measured
    )


def _rows_of(
    function: Callable[..., ResultTable], folder: Path, **arguments: Any
) -> dict[str, Any]:
    found = function(folder, **arguments)
    told = {"title": found.title, "columns": list(found.columns), "notes": list(found.notes)}
    return {**told, "rows": [list(row) for row in found.rows], "keys": found.keys}


def _table(about: str, found: FoundCells) -> ResultTable:
    cell = found.cells.get(WHOLE)
    if cell is None:
        return ResultTable(about, ("cell",), (("empty",),))
    told = cell.figures
    rows = tuple(tuple(row) for row in told["rows"])
    return ResultTable(
        told["title"], tuple(told["columns"]), rows, tuple(told["notes"]), keys=told["keys"]
    )


def rows_by_first(found: FoundCells) -> dict[Any, dict[str, Any]]:
    """The rows of the kept table by their first column; nothing where it is empty."""
    cell = found.cells.get(WHOLE)
    if cell is None:
        return {}
    columns = cell.figures["columns"]
    return {row[0]: dict(zip(columns, row, strict=True)) for row in cell.figures["rows"]}
