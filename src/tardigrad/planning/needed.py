"""How many updates training needs, given how many gradients go into each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tardigrad.core.checks import count, positive, require
from tardigrad.core.csv_columns import read_columns

GRADIENTS = 10_000.0
"""How many gradients are needed in all where nobody says how many updates are."""


@dataclass(frozen=True)
class Needed:
    """Updates needed as a function of the gradients per update, from a table of points.

    Between points it goes along straight lines in log–log, because updates fall as a power of the
    batch size until they stop falling; beyond the ends the last line goes on, and a single point
    is taken to scale linearly (twice the gradients, half the updates). `linear=True` draws straight
    lines in the plain numbers instead, as the backup-workers paper does. Without a table every
    gradient counts the same, and `GRADIENTS` of them are needed.
    """

    points: tuple[tuple[int, float], ...] = ((1, GRADIENTS),)
    linear: bool = False

    def __post_init__(self) -> None:
        require(len(self.points) > 0, "the table of updates needed is empty")
        for gradients, updates in self.points:
            count("gradients per update", gradients)
            positive(f"updates needed at {gradients} gradients", updates)
        sizes = [gradients for gradients, _ in self.points]
        require(len(set(sizes)) == len(sizes), f"a point is given twice: {sizes}")

    @staticmethod
    def of(points: Mapping[int, float], linear: bool = False) -> "Needed":
        return Needed(tuple(sorted(points.items())), linear)

    @staticmethod
    def load(path: str | Path) -> "Needed":
        """From a CSV file with the columns workers and updates."""
        rows = read_columns(path, {"workers": int, "updates": float})
        return Needed(tuple(sorted((int(row["workers"]), row["updates"]) for row in rows)))

    def __call__(self, gradients: float) -> float:
        sizes = np.array([size for size, _ in sorted(self.points)], dtype=np.float64)
        updates = np.array([needed for _, needed in sorted(self.points)], dtype=np.float64)
        if len(sizes) == 1:
            return float(updates[0] * sizes[0] / gradients)
        if not self.linear:
            sizes, updates, gradients = np.log(sizes), np.log(updates), np.log(gradients)
        at = int(np.clip(np.searchsorted(sizes, gradients), 1, len(sizes) - 1))
        slope = (updates[at] - updates[at - 1]) / (sizes[at] - sizes[at - 1])
        value = updates[at] + slope * (gradients - sizes[at])
        return float(value if self.linear else np.exp(value))
