"""A log as a table of texts: CSV with any usual separator, JSON, or JSON lines."""

import csv
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tardigrad.core.checks import require

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
OBJECTS = re.compile(r"\s*((?P<list>\[)\s*[{\]]|\{)")
"""How JSON objects begin, in a list or a line each; '[INFO] starting' is neither."""
DECIMAL_COMMA = re.compile(r"^-?\d+,\d+$")


class StepLine(NamedTuple):
    """One line below the header: its number in the file, and its cells by column."""

    number: int
    cells: dict[str, str]


@dataclass(frozen=True)
class LogTable:
    """Every line has every column, but for lines of JSON. `guesses` says how it was read."""

    path: str
    columns: tuple[str, ...]
    lines: tuple[StepLine, ...]
    guesses: tuple[str, ...] = ()

    def where(self, line: StepLine) -> str:
        return f"{self.path}, line {line.number}"


def read_table(path: str | Path) -> LogTable:
    """What the file holds; what cannot be a table is refused with its line."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a CSV file: {error}") from error
    if OBJECTS.match(text) or _mostly_objects(text):
        return _read_json(str(path), text)
    try:
        return _read_separated(str(path), text)
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read as a CSV file: {error}") from error


def _read_separated(path: str, text: str) -> LogTable:
    lines = text.rstrip().splitlines()
    first = next((i for i, line in enumerate(lines) if not line.startswith("#")), 0)
    head = lines[first] if lines else ""
    separator = max(SEPARATORS, key=head.count)
    rows = list(csv.reader(io.StringIO("\n".join(lines[first:])), delimiter=separator))
    header = [name.strip() for name in rows[0]] if rows else []
    require(
        any(not _is_number(name) for name in header) and all(header[1:]),
        f"{path}, line {first + 1}: the header must name the columns, such as 'worker,step_s'; "
        f"it says {','.join(header)!r}",
    )
    require(len(set(header)) == len(header), f"{path}, line {first + 1}: a column stands twice")
    require(len(rows) > 1, f"{path} has a header and nothing below it")
    guesses = [] if separator == "," else [f"columns separated by {SEPARATORS[separator]}"]
    told, commas = [], False
    for number, cells in enumerate(rows[1:], start=first + 2):
        require(
            len(cells) == len(header),
            f"{path}, line {number}: {len(cells)} values for the {len(header)} columns "
            f"{','.join(header)}",
        )
        cells = [cell.strip() for cell in cells]
        if separator != "," and any(map(DECIMAL_COMMA.match, cells)):
            commas = True
            cells = [c.replace(",", ".") if DECIMAL_COMMA.match(c) else c for c in cells]
        told.append(StepLine(number, dict(zip(header, cells, strict=True))))
    if commas:
        guesses.append("1,5 is 1.5")
    return LogTable(path, tuple(header), tuple(told), tuple(guesses))


def _read_json(path: str, text: str) -> LogTable:
    """An object a line, or a list of them; what stands inside an object's objects is left out."""
    objects: Iterable[tuple[int, Any]]
    if (found := OBJECTS.match(text)) and found["list"]:
        try:
            objects = enumerate(json.loads(text), start=1)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is not valid JSON: {error}") from None
        guesses = ["a JSON list of objects"]
    else:
        guesses = ["JSON, an object a line"]
        objects = _json_lines(path, text, guesses)
    lines = []
    for number, one in objects:
        require(isinstance(one, dict), f"{path}, line {number}: {one!r} is not a JSON object")
        flat = {k: v for k, v in one.items() if isinstance(v, int | float | str)}
        lines.append(StepLine(number, {str(k): str(v).strip() for k, v in flat.items()}))
    require(bool(lines), f"{path} has no lines")
    columns = tuple(dict.fromkeys(name for line in lines for name in line.cells))
    return LogTable(path, columns, tuple(lines), tuple(guesses))


def _mostly_objects(text: str) -> bool:
    """Programs say other things between, and before the first."""
    lines = [line for line in text.splitlines() if line.strip()]
    return 2 * sum(map(_opens_object, lines)) > len(lines)


def _opens_object(line: str) -> bool:
    return line.lstrip().startswith("{")


def _json_lines(path: str, text: str, guesses: list[str]) -> list[tuple[int, Any]]:
    objects, left = [], 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not _opens_object(line):
            left += bool(line.strip())
            continue
        try:
            objects.append((number, json.loads(line)))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number} is not valid JSON: {error}") from None
    if left:
        guesses.append(f"lines that are no JSON objects are left out: {left:,}")
    return objects


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
