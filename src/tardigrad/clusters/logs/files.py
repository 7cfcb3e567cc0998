"""The table of a file: which kind of file it is decides how it is read."""

import csv
from pathlib import Path

from tardigrad.clusters.logs.objects import (
    above_objects,
    begins_with_objects,
    mostly_objects,
    read_objects,
)
from tardigrad.clusters.logs.rows import is_table
from tardigrad.clusters.logs.separated import read_separated
from tardigrad.clusters.logs.table import LogTable


def read_table(path: str | Path) -> LogTable:
    """What the file holds; what cannot be a table is refused with its line."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a CSV file: {error}") from error
    try:
        read = read_objects if _holds_objects(text) else read_separated
        return read(str(path), text)
    except csv.Error as error:
        raise ValueError(f"{path} cannot be read as a CSV file: {error}") from error


def _holds_objects(text: str) -> bool:
    """A few objects among other lines are enough, unless those above them are a table."""
    if begins_with_objects(text):
        return True
    above = above_objects(text)
    return above is not None and (mostly_objects(text) or not is_table(above))
