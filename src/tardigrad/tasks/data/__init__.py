"""Data sets: fetched once, verified always."""

from tardigrad.tasks.data.dataset import Arrays, Bytes, DataError, Images, Text
from tardigrad.tasks.data.store import DATASETS, Row, default_folder, describe, fetch, load

__all__ = [
    "DATASETS",
    "Arrays",
    "Bytes",
    "DataError",
    "Images",
    "Row",
    "Text",
    "default_folder",
    "describe",
    "fetch",
    "load",
]
