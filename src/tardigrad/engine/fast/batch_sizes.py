"""Batch sizes to compile for: few, chosen so that the schedule's batches are covered cheaply."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import numpy as np

from tardigrad.core.arrays import Ints

WORTH = 0.95
CANDIDATES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def choose_sizes(counts: Ints, limit: int, call: float) -> tuple[int, ...]:
    """At most `limit` sizes, largest first, with which to compute batches of `counts` gradients.

    `call`: what a call costs before its first gradient, in gradients.
    """
    lengths, times = np.unique(counts[counts > 0], return_counts=True)
    if not len(lengths):
        return (1,)
    largest = int(lengths[-1])
    known = [size for size in CANDIDATES if size <= largest]
    if largest not in known:
        known.append(largest)
    known = known[-10:] if largest > 16 else known

    def cost(sizes: tuple[int, ...]) -> float:
        each = (price(int(n), sizes, call)[0] for n in lengths)
        return sum(c * int(t) for c, t in zip(each, times, strict=True))

    chosen: tuple[int, ...] = ()
    paid = float("inf")
    for k in range(1, limit + 1):
        best = min(combinations(reversed(known), k), key=cost, default=())
        # One more size is one more compilation: it has to be worth it.
        if not best or cost(best) > WORTH * paid:
            break
        chosen, paid = best, cost(best)
    return chosen


def cover(count: int, sizes: Sequence[int], call: float) -> tuple[int, ...]:
    """The calls, by size, that compute `count` gradients; the last may have room to spare."""
    return price(count, tuple(sizes), call)[1]


@cache
def price(count: int, sizes: tuple[int, ...], call: float) -> tuple[float, tuple[int, ...]]:
    """The cheapest cover and what it costs."""
    if count <= 0:
        return 0.0, ()
    best: tuple[float, tuple[int, ...]] | None = None
    for size in sizes:
        rest, calls = price(count - size, sizes, call)
        found = (size + call + rest, (size, *calls))
        if best is None or found[0] < best[0]:
            best = found
    assert best is not None
    return best
