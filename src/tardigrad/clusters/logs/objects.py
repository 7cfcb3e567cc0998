"""JSON: an object a line, or a list of them."""

import json
import re
from collections.abc import Iterable
from typing import Any

from tardigrad.clusters.logs.table import LogTable, StepLine
from tardigrad.core.checks import require

OBJECTS = re.compile(r"\s*((?P<list>\[)\s*[{\]]|\{)")
"""How JSON objects begin, in a list or a line each; '[INFO] starting' is neither."""


def begins_with_objects(text: str) -> bool:
    return bool(OBJECTS.match(text))


def mostly_objects(text: str) -> bool:
    """Programs say other things between, and before the first."""
    lines = [line for line in text.split("\n") if line.strip()]
    return 2 * sum(map(_opens_object, lines)) > len(lines)


def above_objects(text: str) -> str | None:
    """The lines above the first that is an object, if one is. None is in CSV: it doubles quotes."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if _is_object(line)), None)
    return None if first is None else "\n".join(lines[:first])


def read_objects(path: str, text: str) -> LogTable:
    """What stands inside an object's objects is left out."""
    objects: Iterable[tuple[int, Any]]
    if (found := OBJECTS.match(text)) and found["list"]:
        try:
            objects = enumerate(_loaded(text), start=1)
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


def _json_lines(path: str, text: str, guesses: list[str]) -> list[tuple[int, Any]]:
    objects, left = [], 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not _opens_object(line):
            left += bool(line.strip())
            continue
        try:
            objects.append((number, _loaded(line)))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number} is not valid JSON: {error}") from None
    if left:
        guesses.append(f"lines that are no JSON objects are left out: {left:,}")
    return objects


def _opens_object(line: str) -> bool:
    return line.lstrip().startswith("{")


def _is_object(line: str) -> bool:
    """And says something."""
    if not _opens_object(line):
        return False
    try:
        return bool(_loaded(line))
    except json.JSONDecodeError:
        return False


def _loaded(text: str) -> Any:
    """Fractions stay texts: as floats, times since 1970 would lose digits."""
    return json.loads(text, parse_float=str)
