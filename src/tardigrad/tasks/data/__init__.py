"""Data sets: fetched once, verified always."""

from tardigrad.tasks.data.dataset import Bytes, DataError, Images, RawArrays, Text
from tardigrad.tasks.data.store import DATASETS, Row, default_folder, describe, fetch, load

__all__ = [
    "DATASETS",
    "Bytes",
    "DataError",
    "Images",
    "RawArrays",
    "Row",
    "Text",
    "default_folder",
    "describe",
    "fetch",
    "load",
]
