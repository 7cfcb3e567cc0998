"""Tables as text at any width: no label and no digit is ever left out.

Where a table is too wide, headers and words go on in the next line. Where that is not enough, its
columns are divided over up to three tables, each with the columns that name a row. Where that is
not enough either, records stand one below another. Lines break at blanks only and numbers stay
whole, so a single word that is wider than the screen runs over its edge.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

GAP = 2
JOINS = ("±", "of", "+")
MOST_PARTS = 3


class TextLine(NamedTuple):
    text: str
    heads: bool = False
    """Whether it names columns."""


@dataclass(frozen=True)
class TextTable:
    """A table for a console: as wide as its terminal, or as it needs to be where there is none."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1
    """How many of the first columns name a row."""
    headed: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(options.max_width if console.is_terminal else None):
            style = "bold" if line.heads else ""
            yield Text(line.text, style, no_wrap=True, overflow="ignore")

    def lines(self, width: int | None) -> list[TextLine]:
        """What fits into `width`; None: on one line per row."""
        parts = self._parts(width)
        if parts is None:
            return list(self._records(width or 0))
        out: list[TextLine] = []
        for part, widths in parts:
            out += [TextLine(""), *self._grid(part, widths)] if out else self._grid(part, widths)
        return out

    def _parts(self, width: int | None) -> list[tuple[list[int], list[int]]] | None:
        """Columns that stand side by side, and how wide they are; None: not even a few do."""
        left = list(range(len(self.columns)))
        keys, parts = left[: self.keys], list[tuple[list[int], list[int]]]()
        left = left[self.keys :]
        while left or not parts:
            taken = len(left)
            while (widths := self._widths(keys + left[:taken], width)) is None:
                taken -= 1
                if taken < 1:
                    return None
            parts.append((keys + left[:taken], widths))
            left = left[taken:]
        return parts if len(parts) <= MOST_PARTS else None

    def _widths(self, part: list[int], width: int | None) -> list[int] | None:
        """As wide as they like; where that is too much the widest gives way; None: they cannot."""
        widths = [max(map(len, self._column(i))) for i in part]
        if width is None:
            return widths
        least = [max(map(_least, self._column(i))) for i in part]
        room = width - GAP * (len(part) - 1)
        if sum(least) > room:
            return None
        while sum(widths) > room:
            soft = [i for i in range(len(part)) if widths[i] > least[i]]
            widths[max(soft, key=widths.__getitem__)] -= 1
        return widths

    def _column(self, index: int) -> list[str]:
        head = [self.columns[index]] if self.headed else []
        return [*head, *(row[index] for row in self.rows), ""]

    def _grid(self, part: list[int], widths: list[int]) -> Iterator[TextLine]:
        right = [self._aligned_right(i) for i in part]
        if self.headed:
            for text in _beside([self.columns[i] for i in part], widths, right):
                yield TextLine(text, heads=True)
            yield TextLine("─" * (sum(widths) + GAP * (len(widths) - 1)))
        for row in self.rows:
            yield from map(TextLine, _beside([row[i] for i in part], widths, right))

    def _aligned_right(self, index: int) -> bool:
        """Columns that hold numbers; the first one only where it holds nothing else."""
        numbers = [_is_number(row[index]) for row in self.rows if row[index]]
        return all(numbers) if index == 0 else any(numbers)

    def _records(self, width: int) -> Iterator[TextLine]:
        longest = max(map(len, self.columns))
        for number, row in enumerate(self.rows):
            if number and self.headed:
                yield TextLine("")
            for column, (name, cell) in enumerate(zip(self.columns, row, strict=True)):
                if not self.headed:
                    yield from map(TextLine, _wrapped(cell, width, "  " if column else ""))
                elif longest + GAP + _least(cell) <= width:
                    for n, text in enumerate(_wrapped(cell, width - longest - GAP) or [""]):
                        yield TextLine(f"{'' if n else name:{longest + GAP}}{text}".rstrip())
                else:
                    yield from map(TextLine, _wrapped(name, width))
                    yield from map(TextLine, _wrapped(cell, width, "  "))


def wrapped(text: str, width: int | None) -> list[str]:
    """A sentence in lines of at most `width`, broken at blanks; None: one line."""
    return [text] if width is None else _wrapped(text, width)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        max(width, len(indent) + 1),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _beside(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """Cells side by side, each in as many lines as it takes."""
    columns = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for line in range(max(1, *map(len, columns))):
        texts = [column[line] if line < len(column) else "" for column in columns]
        placed = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(texts, widths, right, strict=True)
        ]
        yield (" " * GAP).join(placed).rstrip()


def _least(cell: str) -> int:
    """The narrowest column that holds it: as wide as its longest word, a number's whole cell."""
    return len(cell) if _is_number(cell) else max(map(len, cell.split()), default=0)


def _is_number(cell: str) -> bool:
    """One number, or several with no other words: 0.2 ± 0.1 (2 of 3)."""
    words = cell.split()
    return bool(words) and all(w in JOINS or re.match(r"[\[(+−-]*\d", w) for w in words)
