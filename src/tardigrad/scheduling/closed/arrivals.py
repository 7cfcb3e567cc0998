"""When workers arrive that never wait, or only for the slowest, and in which order.

Worker w's step k ends at

    end(k, w) = start(k, w) + took(k, w),    start(k, w) = max(end(k − 1, w), M(k − bound − 1)),

M(j) = max over w of end(j, w), which is when the slowest has made step j; without a bound only the
first term is there, and ends are running sums. Sums and maxima are the event loop's own, in its own
order, so the times are equal bit by bit.

The event loop takes first what ends first, and of several that end at the same instant what started
first. Gradients start in the order of the arrivals that let them, and those that one arrival lets
start begin in worker order. So arrivals are ordered by (end, place of the arrival that let it
start, worker). The place in the middle is known when the order up to the start is; where ends tie
it is looked up, tie by tie, from the earliest on (`_settle`). This needs every gradient to take
some time: where one of those that tie takes none, there is no closed form.
"""

import math
from typing import NamedTuple

import numpy as np

from tardigrad.clusters import StepTimes
from tardigrad.core.arrays import Floats, Ints


class Arrivals(NamedTuple):
    """The first arrivals, in order."""

    worker: Ints
    step: Ints
    end_s: Floats
    place: Ints
    """Of each (step, worker) in this order, shape (steps, workers); `LATER` if not among them."""
    let_by: Ints
    """The place of the arrival that let each (step, worker) start; −1: it starts at the beginning;
    `LATER`: it does not start."""


LATER = np.iinfo(np.int64).max


def arrivals(
    times: StepTimes, workers: int, count: int, bound: float = math.inf
) -> Arrivals | None:
    """The first `count` arrivals; nobody goes on more than `bound` steps ahead of the slowest.

    Steps are computed for all until everybody's last one ends after the last arrival sought.
    """
    ends, each = _Ends(times, workers, bound), -(-count // workers)
    ends.extend(each + 2 + int(min(bound, each // 8)))
    while True:
        flat = ends.table.ravel()
        last_s = np.partition(flat, count - 1)[count - 1]
        if ends.table[-1].min() > last_s:
            break
        ends.extend(max(2, int(min(bound, len(ends.table)))))
    within = np.nonzero(flat <= last_s)[0]  # `count` of them, or more where the last are tied
    order = within[np.argsort(flat[within], kind="stable")]
    place = np.full(ends.table.shape, LATER)
    tied = np.nonzero(np.diff(flat[order]) == 0)[0]
    if len(tied):
        starts = ends.starts(within)
        if (flat[within] <= starts).any():
            return None
        # Who started at another time is in order by that; often all are.
        order = within[np.lexsort((within % workers, starts, flat[within]))]
        place.ravel()[order] = np.arange(len(order))
        keys = (order % workers, _let_by(place, bound).ravel()[order], flat[order])
        if not np.array_equal(np.lexsort(keys), np.arange(len(order))):
            _settle(order, tied, place, bound)
    place.ravel()[order[:count]] = np.arange(count)
    place.ravel()[order[count:]] = LATER
    order = order[:count]
    step, worker = np.divmod(order, workers)
    return Arrivals(worker, step, flat[order], place, _let_by(place, bound))


class _Ends:
    """`table[k, w]` is when worker w's step k ends; it grows by steps."""

    def __init__(self, times: StepTimes, workers: int, bound: float) -> None:
        self.times = times
        self.bound = bound
        self.everyone = np.arange(workers)
        self.table: Floats = np.empty((0, workers))
        self._slowest: list[float] = []
        """M(j) of each step so far."""

    def extend(self, steps: int) -> None:
        done = len(self.table)
        more = self.times.step_s(self.everyone[None, :], np.arange(done, done + steps)[:, None])
        more = np.ascontiguousarray(more)
        if math.isinf(self.bound):
            if done:
                more[0] += self.table[-1]
            more = np.cumsum(more, axis=0)
        else:
            before = self.table[-1] if done else np.zeros(len(self.everyone))
            for k, row in enumerate(more, done):
                waits_for = k - int(self.bound) - 1
                row += np.maximum(before, self._slowest[waits_for]) if waits_for >= 0 else before
                self._slowest.append(float(row.max()))
                before = row
        self.table = np.concatenate([self.table, more])

    def starts(self, events: Ints) -> Floats:
        """When each of these (step · workers + worker) began."""
        step, worker = np.divmod(events, len(self.everyone))
        starts = np.where(step > 0, self.table[step - 1, worker], 0.0)
        if math.isinf(self.bound):
            return starts
        waits_for = step - int(self.bound) - 1
        slowest = np.array(self._slowest)[np.maximum(waits_for, 0)]
        return np.where(waits_for >= 0, np.maximum(starts, slowest), starts)


def _let_by(place: Ints, bound: float) -> Ints:
    """The place of what let each (step, worker) start: the worker's own arrival before it, or the
    last of all that it had to wait for, whichever is later."""
    out = np.full(place.shape, -1)
    out[1:] = place[:-1]
    if math.isinf(bound):
        return out
    waits = int(bound) + 1
    if waits < len(place):
        last = place[:-waits].max(axis=1)
        np.maximum(out[waits:], last[:, None], out=out[waits:])
    return out


def _settle(order: Ints, tied: Ints, place: Ints, bound: float) -> None:
    """Put those that end together (neighbours at `tied`) in order, from the earliest on.

    What let them start ended before them, and is in its place by then."""
    workers = place.shape[1]
    flat = place.ravel()
    breaks = np.nonzero(np.diff(tied) > 1)[0]
    firsts = tied[np.concatenate([[0], breaks + 1])].tolist()
    lasts = (tied[np.concatenate([breaks, [len(tied) - 1]])] + 2).tolist()
    for first, last in zip(firsts, lasts, strict=True):
        events = order[first:last]
        steps = events // workers
        let_by = np.where(steps > 0, flat[events - workers], -1)
        if not math.isinf(bound):
            for step in np.unique(steps).tolist():
                waits_for = step - int(bound) - 1
                if waits_for >= 0:
                    mine = steps == step
                    let_by[mine] = np.maximum(let_by[mine], place[waits_for].max())
        events = events[np.lexsort((events % workers, let_by))]
        order[first:last] = events
        flat[events] = np.arange(first, last)
