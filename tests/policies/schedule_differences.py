"""Comparing schedules field by field."""

from collections.abc import Collection
from dataclasses import fields

import numpy as np

from tardigrad import Schedule


def differing(one: Schedule, other: Schedule, ignore: Collection[str] = ()) -> list[str]:
    """Names of the fields that differ; what merely describes the schedule (`about`) never does."""
    names = [f.name for f in fields(Schedule) if f.name not in {"about", *ignore}]
    return [name for name in names if not _equal(getattr(one, name), getattr(other, name))]


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return a == b
