"""Numbers for a page: typed arrays as base64, in as few bytes as they need; `data.js` reads them.

A hundred thousand gradients are about two megabytes so, and are read in milliseconds.
"""

import base64
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tardigrad.core.arrays import Floats, Ints

TICKS = 2**32 - 1
"""Times are whole parts of the longest: finer than any screen, and equal times stay equal."""
TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32")


def packed_ints(values: npt.ArrayLike) -> dict[str, Any]:
    """One number where all are equal; else the numbers, or their differences where those are
    smaller."""
    given = np.asarray(values, dtype=np.int64)
    if not len(given) or (given == given[0]).all():
        return {"length": len(given), "all": int(given[0]) if len(given) else 0}
    plain, steps = _smallest(given), _smallest(np.diff(given, prepend=0))
    delta = steps is not None and (plain is None or steps.itemsize < plain.itemsize)
    kind = steps if delta else plain
    if kind is None:
        raise OverflowError("numbers of a page must fit into 32 bits")
    data = (np.diff(given, prepend=0) if delta else given).astype(kind.newbyteorder("<"))
    text = base64.b64encode(data.tobytes()).decode("ascii")
    return {"type": kind.name, "delta": delta, "data": text}


def packed_times(values: Floats, longest: float) -> dict[str, Any]:
    """Times from 0 to the longest; one before 0, by the clock of another machine, counts as 0."""
    unit = longest / TICKS if longest > 0 else 1.0
    ticks = np.clip(np.rint(np.asarray(values) / unit), 0, TICKS)
    return {"unit": unit, "ticks": packed_ints(ticks)}


def plain_numbers(values: Iterable[float], digits: int = 7) -> list[float | None]:
    """For JSON, which knows no NaN; 17 digits are all."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]


def _smallest(values: Ints) -> np.dtype[Any] | None:
    low, high = int(values.min()), int(values.max())
    for name in TYPES:
        room = np.iinfo(name)
        if room.min <= low and high <= room.max:
            return np.dtype(name)
    return None
