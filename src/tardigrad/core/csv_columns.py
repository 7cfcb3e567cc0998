"""CSV files from outside, checked line by line."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path


def read_columns(
    path: str | Path, columns: Mapping[str, type[int] | type[float]]
) -> list[dict[str, float]]:
    """The named columns of every line; other columns are ignored.

    int columns are whole numbers from 0, float columns finite and greater than 0. Whatever is wrong
    is told with the line number.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file))
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as a CSV file: {error}") from error
    header = [name.strip() for name in lines[0]] if lines else []
    for name in columns:
        if name not in header:
            raise ValueError(
                f"{path}, line 1: the header must name the column {name}, "
                f"such as '{','.join(columns)}'; it says {','.join(header)!r}"
            )
    if len(lines) == 1:
        raise ValueError(f"{path} has a header and nothing below it")
    return [
        _line(cells, header, columns, f"{path}, line {number}")
        for number, cells in enumerate(lines[1:], start=2)
    ]


def _line(
    cells: list[str],
    header: list[str],
    columns: Mapping[str, type[int] | type[float]],
    where: str,
) -> dict[str, float]:
    if len(cells) != len(header):
        raise ValueError(
            f"{where}: {len(cells)} values for the {len(header)} columns {','.join(header)}"
        )
    named = dict(zip(header, (cell.strip() for cell in cells), strict=True))
    return {
        name: _whole(named[name], name, where) if kind is int else _real(named[name], name, where)
        for name, kind in columns.items()
    }


def _whole(text: str, name: str, where: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{where}: {name} must be a whole number from 0, got {text!r}")
    return int(text)


def _real(text: str, name: str, where: str) -> float:
    if not text:
        raise ValueError(f"{where}: {name} is missing; give a number or leave the line out")
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{where}: {name} must be a number, got {text!r}") from None
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{where}: {name} must be finite and greater than 0, got {text!r}")
    return value
