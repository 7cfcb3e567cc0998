"""What a study or a benchmark found: a table, remarks, and figures that were drawn."""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.latex import latex_table
from tardigrad.core.text_table import TextTable

Cell = str | int | float | None


@dataclass(frozen=True)
class ResultTable:
    """A table with a name for each column; None is an empty cell.

    The first `keys` columns name a row.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    figures: tuple[Path, ...] = field(default=())
    keys: int = 1

    def __post_init__(self) -> None:
        named = all(self.columns) and len(set(self.columns)) == len(self.columns)
        require(named, f"every column needs a name of its own, got {self.columns}")

    def __str__(self) -> str:
        """As the command line prints it into a file: one line per row, then the remarks."""
        lines = TextTable(self.columns, self.texts(), self.keys).lines(None)
        return "\n".join([self.title, *(line.text for line in lines), *self.notes])

    def texts(self) -> list[list[str]]:
        """The cells of every row as they are printed."""
        return [[cell_text(cell) for cell in row] for row in self.rows]

    def latex(self) -> str:
        """A table environment for LaTeX with booktabs; title and remarks are its caption."""
        caption = ". ".join([self.title, *self.notes])
        return latex_table(caption, self.columns, self.texts(), self.keys)

    def data(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        return {
            "title": self.title,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "notes": list(self.notes),
            "figures": [str(path) for path in self.figures],
        }

    def save_csv(self, path: str | Path) -> None:
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows(self.rows)


def cell_text(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value
