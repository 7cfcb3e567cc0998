"""Findings on the screen."""

import json

from rich import box
from rich.console import JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tardigrad.cli.console import out
from tardigrad.findings import Cell, Findings

_UNBOUNDED = out.options.update(max_width=1000)


def show(findings: Findings) -> None:
    """Table, remarks and where the figures are."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    rows = [[_cell(cell) for cell in row] for row in findings.rows]
    for i, column in enumerate(findings.columns):
        words = any(isinstance(row[i], str) for row in findings.rows)
        # Headers and words may go on in the next line; a number that is cut is no number.
        numbers = [not isinstance(row[i], str) for row in findings.rows]
        least = max((len(row[i]) for row, is_ in zip(rows, numbers, strict=True) if is_), default=0)
        justify: JustifyMethod = "left" if words and i == 0 else "right"
        table.add_column(Text(column), justify=justify, min_width=least or None)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    out.print(Text(findings.title, style="italic"))
    edge = out.width
    if not out.is_terminal:  # a file has no edge
        out.width = max(edge, Measurement.get(out, _UNBOUNDED, table).maximum)
    out.print(table)
    out.width = edge
    for note in findings.notes:
        out.print(note, markup=False)
    for figure in findings.figures:
        out.print(f"figure: {figure}", markup=False)


def show_json(findings: Findings) -> None:
    print(json.dumps(findings.data(), indent=2))


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value
