"""The rows of a text whose columns are separated, each with its line in the file."""

import csv
import io
import re
from collections.abc import Iterator
from typing import NamedTuple

from tardigrad.clusters.logs.table import is_date, is_number

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
RULE = re.compile(r"[\s|+:=-]*-[\s|+:=-]*")
"""A line of dashes, as Markdown, psql and mysql draw it: |---|---|, ---+---, +---+---+."""
FOOTER = re.compile(r"\s*(\(\d+ rows?\)|\d+ rows? in set.*)\s*")
"""What psql and mysql say below a table."""


class TableRow(NamedTuple):
    """Its cells, and the line of the file on which it ends."""

    number: int
    cells: list[str]


class Rows:
    """All rows of a text, read once; without blank lines and comments.

    A cell in quotes may hold line breaks, and what looks like a comment there is none. So lines are
    judged only between rows, and become blank instead of vanishing, which keeps the reader's count
    of lines that of the file.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        head = next((line for line in io.StringIO(text) if not _idle(line, barred=True)), "")
        self.separator = max(SEPARATORS, key=head.count)
        self.comments = 0
        """So far."""
        self._within = False

    def __iter__(self) -> Iterator[TableRow]:
        reader = csv.reader(self._lines(), delimiter=self.separator)
        for cells in reader:
            self._within = False
            if cells:
                yield TableRow(reader.line_num, [cell.strip() for cell in cells])

    def _lines(self) -> Iterator[str]:
        for line in io.StringIO(self.text):
            if self._within or not _idle(line, barred=self.separator == "|"):
                self._within = True
                yield line
            else:
                self.comments += _is_comment(line)
                yield "\n"


def is_table(text: str) -> bool:
    """A header, and below it as many cells in each row, with a number or a date in the first."""
    try:
        header, *below = [row.cells for row in Rows(text)] or [[]]
    except csv.Error:
        return False
    if not below or any(len(cells) != len(header) for cells in below):
        return False
    return any(map(_is_value, below[0])) and not any(map(_is_value, header))


def _idle(line: str, barred: bool) -> bool:
    """Whether a line between rows holds no row."""
    if not line.strip() or _is_comment(line):
        return True
    return barred and bool(RULE.fullmatch(line) or FOOTER.fullmatch(line))


def _is_comment(line: str) -> bool:
    return line.startswith("#")


def _is_value(cell: str) -> bool:
    return is_number(cell) or is_date(cell)
