"""FRED's dispatcher: no clock, only the order in which gradients arrive."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tardigrad.clusters.cluster import Clockless, Dispatch
from tardigrad.core.arrays import Floats, Ints
from tardigrad.core.checks import not_negative, positive, require
from tardigrad.core.keys import integers, key, uniform

ProbabilityChange = Callable[[Floats, int], Floats]


@dataclass(frozen=True)
class Dispatcher(Clockless):
    """Each event draws the worker whose gradient arrives next, from selection weights.

    Args:
        weights: one per worker, in proportion to its chance of being drawn; None: all alike.
        drawn_factor: a worker's weight is multiplied by this each time it is drawn. Below 1 makes
            rounds even, above 1 makes the frequent more frequent; 1: weights never change.
        change: in place of drawn_factor, any rule (weights, drawn) -> weights.

    A worker that waits cannot be drawn.
    """

    workers: int
    weights: tuple[float, ...] | None = None
    drawn_factor: float = 1.0
    change: ProbabilityChange | None = None

    def __post_init__(self) -> None:
        self.check_workers()
        positive("drawn_factor", self.drawn_factor)
        if self.weights is not None:
            require(
                len(self.weights) == self.workers,
                f"weights has {len(self.weights)} entries for {self.workers} workers",
            )
            for i, weight in enumerate(self.weights):
                not_negative(f"weights[{i}]", weight)
            require(sum(self.weights) > 0, "weights must not all be 0")

    @property
    def uniform(self) -> bool:
        return self.weights is None and self.drawn_factor == 1.0 and self.change is None

    def dispatch(self, seed: int) -> Dispatch:
        stream = key(seed, "dispatch")
        if self.uniform:
            return UniformDispatch(stream)
        start = np.ones(self.workers) if self.weights is None else np.array(self.weights)
        return _WeightedDispatch(stream, start, self.change or self._drawn)

    def _drawn(self, weights: Floats, drawn: int) -> Floats:
        weights[drawn] *= self.drawn_factor
        return np.asarray(weights / weights.max())  # only ratios count; this keeps them in range


class UniformDispatch(Dispatch):
    """Every computing worker is equally likely."""

    def __init__(self, stream: int) -> None:
        self.stream = stream

    def next(self, event: int, computing: Ints) -> int:
        return int(computing[integers(self.stream, event, len(computing))])

    def order(self, workers: int, events: int) -> Ints:
        """The first `events` arrivals where nobody ever waits."""
        return integers(self.stream, np.arange(events), workers)


class _WeightedDispatch(Dispatch):
    def __init__(self, stream: int, weights: Floats, change: ProbabilityChange) -> None:
        self.stream = stream
        self.weights = weights
        self.change = change

    def next(self, event: int, computing: Ints) -> int:
        chances = np.cumsum(self.weights[computing])
        require(
            bool(chances[-1] > 0),
            f"no computing worker has a positive selection weight at event {event}",
        )
        at = np.searchsorted(chances, uniform(self.stream, event) * chances[-1], side="right")
        drawn = int(computing[min(int(at), len(computing) - 1)])
        changed = np.asarray(self.change(self.weights.copy(), drawn), dtype=np.float64)
        require(
            changed.shape == self.weights.shape
            and bool((np.isfinite(changed) & (changed >= 0)).all()),
            "the dispatcher's change rule must return one finite weight ≥ 0 per worker "
            f"({len(self.weights)} of them), but returned {changed.tolist()}",
        )
        self.weights = changed
        return drawn


class FixedOrder(Dispatch):
    """A given order of arrivals, for `Schedule.from_order`."""

    def __init__(self, order: Ints, workers: int) -> None:
        self.arrivals = order
        self.workers = workers

    def next(self, event: int, computing: Ints) -> int:
        worker = int(self.arrivals[event])
        if not 0 <= worker < self.workers:
            raise ValueError(
                f"order[{event}] names worker {worker}, but there are {self.workers} workers: "
                f"use 0 to {self.workers - 1}"
            )
        if worker not in computing:
            raise ValueError(
                f"order[{event}] names worker {worker}, which is still waiting to be released: "
                f"only {computing.tolist()} compute at that moment"
            )
        return worker
