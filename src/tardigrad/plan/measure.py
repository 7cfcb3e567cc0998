"""Updates needed, measured by short simulations instead of given as a table."""

from collections.abc import Callable, Sequence

import numpy as np

from tardigrad.checks import positive, require
from tardigrad.plan.needed import Needed

SMOOTHED = 20
"""A loss is reached when the mean over so many updates is; single batches are too noisy."""


def updates_to(losses: Sequence[float], target: float) -> int | None:
    """How many updates until the smoothed loss is at the target; None if it never is."""
    given = np.asarray(losses, dtype=np.float64)
    width = min(SMOOTHED, len(given))
    means = np.convolve(given, np.ones(width) / width, mode="valid")
    below = np.nonzero(means <= target)[0]
    return int(below[0]) + width if len(below) else None


def measured_needed(
    losses_with: Callable[[int], Sequence[float]], workers: int, target: float
) -> Needed:
    """Train with a quarter, a half and all of the workers in step, and see how long each takes.

    Args:
        losses_with: trains with so many synchronous workers; the batch loss of every update.
    """
    positive("target", target)
    points: dict[int, float] = {}
    for n in sorted({max(1, workers // 4), max(1, workers // 2), workers}):
        losses = losses_with(n)
        reached = updates_to(losses, target)
        require(
            reached is not None,
            f"with {n} workers the loss did not come down to {target:g} within {len(losses)} "
            f"updates (it was {np.mean(losses[-SMOOTHED:]):.4g} at the end): "
            "give a higher target, or let it train longer",
        )
        points[n] = float(reached or 0)
    return Needed.of(points)
