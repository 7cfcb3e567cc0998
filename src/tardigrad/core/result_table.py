"""What a study or a benchmark found: a table, remarks, and figures that were drawn."""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require

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
