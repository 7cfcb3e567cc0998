"""Keyed draws: what a seed decides for one purpose does not depend on its other decisions."""

import math
from collections.abc import Sequence
from typing import TypeVar

from tardigrad.core import keys

T = TypeVar("T")


class Draws:
    """The draws of one seed for one purpose, one after another."""

    def __init__(self, seed: int, purpose: str) -> None:
        self._stream = keys.key(seed, f"fuzz {purpose}")
        self._at = -1

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """To three digits, so that a printed case is short and the same when pasted."""
        return float(f"{low + (high - low) * self._next():.3g}")

    def log_uniform(self, low: float, high: float) -> float:
        return float(f"{math.exp(math.log(low) + math.log(high / low) * self._next()):.3g}")

    def integer(self, low: int, high: int) -> int:
        """Both ends included."""
        return low + int(self._next() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        return self._next() < probability

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def _next(self) -> float:
        self._at += 1
        return float(keys.uniform(self._stream, self._at))
