"""A log as a table of texts, whatever kind of file it was."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple


class StepLine(NamedTuple):
    """One line below the header: its number in the file, and its cells by column."""

    number: int
    cells: dict[str, str]


@dataclass(frozen=True)
class LogTable:
    """Every line has every column, but for lines of JSON.

    Args:
        guesses: how it was read.
        doubts: of columns whose numbers may be read in two ways, why, with a line. They are refused
            if they are needed.
    """

    path: str
    columns: tuple[str, ...]
    lines: tuple[StepLine, ...]
    guesses: tuple[str, ...] = ()
    doubts: Mapping[str, str] = field(default_factory=dict)

    def where(self, line: StepLine) -> str:
        return f"{self.path}, line {line.number}"


def is_number(text: str) -> bool:
    """NaN is one: its line is told when it is needed."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
