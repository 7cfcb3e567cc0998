"""Findings on the screen."""

import json

from rich import box
from rich.table import Table
from rich.text import Text

from tardigrad.cli.console import out
from tardigrad.findings import Cell, Findings


def show(findings: Findings) -> None:
    """Table, remarks and where the figures are."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(findings.columns):
        words = i == 0 and any(isinstance(row[i], str) for row in findings.rows)
        table.add_column(Text(column), justify="left" if words else "right", no_wrap=words)
    for row in findings.rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    out.print(Text(findings.title, style="italic"))
    out.print(table)
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
