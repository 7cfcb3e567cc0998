"""ResultTable on the screen."""

import json

from tardigrad.cli.console import out
from tardigrad.core.result_table import ResultTable
from tardigrad.core.text_table import TextTable, wrapped


def show(findings: ResultTable) -> None:
    """Table, remarks and where the figures are."""
    edge = out.width if out.is_terminal else None  # a file has none
    for line in wrapped(findings.title, edge):
        out.print(line, style="italic")
    out.print(TextTable(findings.columns, findings.texts(), findings.keys))
    for note in findings.notes:
        for line in wrapped(note, edge):
            out.print(line)
    out.print()
    for figure in findings.figures:
        out.print(f"figure: {figure}")


def show_json(findings: ResultTable) -> None:
    print(json.dumps(findings.data(), indent=2))
