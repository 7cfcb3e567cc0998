"""When a gradient is late, from the times that others took."""

import statistics
from collections.abc import Sequence

SLACK = 1e-9
"""A deadline is this much later, relatively, than the gradient it is for: a median of rounded
times may lie just before the times themselves."""
DEVIATIONS = 5.0
"""How many median absolute deviations after the median is late: 3.4 standard deviations of normal
times (**choice**)."""


def late_after_s(times_s: Sequence[float], deviations: float = DEVIATIONS) -> float:
    """median + k · MAD of the time from a version's beginning until a gradient of it comes.

    Neither figure is moved by how late stragglers are. `deviations` is k.
    """
    median = statistics.median(times_s)
    spread = statistics.median([abs(time_s - median) for time_s in times_s])
    return (median + deviations * spread) * (1 + SLACK)
