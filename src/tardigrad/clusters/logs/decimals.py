"""Decimal commas become points."""

import re
from collections.abc import Sequence

from tardigrad.clusters.logs.rows import TableRow

COMMA = re.compile(r"[-+]?[\d.]*,\d+(e[-+]?\d+)?", re.I)
"""1,5 and 1.234,5."""
POINT = re.compile(r"[-+]?\d*\.\d[\d.]*(,\d+)?(e[-+]?\d+)?", re.I)
"""1.234 and 1.234,5."""


def decimal_points(rows: Sequence[TableRow]) -> tuple[Sequence[TableRow], dict[int, str]]:
    """The rows with points for commas, and of the columns that are in doubt, why.

    Where a column has decimal commas, a point may stand between thousands or be decimal after all.
    """
    columns = list(zip(*(row.cells for row in rows), strict=True))
    with_commas = [i for i, column in enumerate(columns) if any(map(COMMA.fullmatch, column))]
    if not with_commas:
        return rows, {}
    doubts = {}
    for i in with_commas:
        row = next((row for row in rows if POINT.fullmatch(row.cells[i])), None)
        if row is not None:
            doubts[i] = f"line {row.number}: {_doubt(row.cells[i])}"
    return [TableRow(row.number, [_pointed(cell) for cell in row.cells]) for row in rows], doubts


def _doubt(cell: str) -> str:
    whole = cell.replace(".", "")
    if "," in cell or cell.count(".") > 1:
        return f"{cell} has points between thousands: write {whole}"
    return (
        f"{cell} may be {whole} or {cell.replace('.', ',')}, since its column has decimal commas "
        "elsewhere: write it as one of the two"
    )


def _pointed(cell: str) -> str:
    return cell.replace(".", "").replace(",", ".") if COMMA.fullmatch(cell) else cell
