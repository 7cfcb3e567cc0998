"""ResultTable on the screen."""

import json

from tardigrad.cli.console import out
from tardigrad.cli.table import Table, wrapped
from tardigrad.core.result_table import Cell, ResultTable


def show(findings: ResultTable) -> None:
    """Table, remarks and where the figures are."""
    edge = out.width if out.is_terminal else None  # a file has none
    for line in wrapped(findings.title, edge):
        out.print(line, style="italic")
    rows = [[cell_text(cell) for cell in row] for row in findings.rows]
    out.print(Table(findings.columns, rows, findings.keys))
    for note in findings.notes:
        for line in wrapped(note, edge):
            out.print(line)
    out.print()
    for figure in findings.figures:
        out.print(f"figure: {figure}")


def show_json(findings: ResultTable) -> None:
    print(json.dumps(findings.data(), indent=2))


def cell_text(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value
