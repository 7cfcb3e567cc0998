"""Confidence intervals of means over few seeds: Student's t, exact for whole degrees of freedom."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

LEVEL = 0.95


class Interval(NamedTuple):
    """Where a mean lies, by the values of a sample."""

    mean: float
    low: float | None
    """None where a single value says nothing of how values vary."""
    high: float | None


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """x̄ ± t(n − 1) · s / √n, where s is the sample's standard deviation."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    n = len(values)
    half = t_quantile(level, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half)


def t_quantile(level: float, freedom: int) -> float:
    """The t with P(|T| ≤ t) = level, to the last bits, by halving the angle θ = arctan(t/√ν)."""
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _within(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √ν · tan θ), a finite sum for whole ν (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= (k - 1) / k * cosine**2
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
