"""Schedules of workers that never wait: arrivals are the same whatever becomes of them.

Worker w's next gradient starts the moment its last one arrives, at the version of that moment. So
rows 0 to N − 1 start at version 0, arrival j starts row N + j, and it brings the row that the
worker's arrival before it started (its own number for the first). What a policy decides is only
which arrivals make an update, and so the version that row N + j reads.
"""

from typing import NamedTuple

import numpy as np

from tardigrad.clusters import Cluster, Dispatcher, TimedCluster, UniformDispatch
from tardigrad.core.arrays import Floats, Ints
from tardigrad.scheduling.closed.arrivals import arrivals


class FreeArrivals(NamedTuple):
    """In order: who arrives, with which of its steps, when, and the place of its arrival before
    (−1: this is its first)."""

    workers: int
    worker: Ints
    step: Ints
    end_s: Floats
    previous: Ints

    @property
    def row(self) -> Ints:
        """The row that each arrival brings."""
        return np.where(self.previous < 0, self.worker, self.workers + self.previous)

    def rows(self, read: Ints) -> "FreeRows":
        """All rows, where arrival j starts one at version read[j]."""
        begin = np.zeros(self.workers, dtype=np.int64)
        end_s = np.full(self.workers + len(read), np.nan)
        end_s[self.row] = self.end_s
        return FreeRows(
            workers=self.workers,
            worker=np.concatenate([np.arange(self.workers), self.worker]),
            step=np.concatenate([begin, self.step + 1]),
            start_s=np.concatenate([begin, self.end_s]),
            end_s=end_s,
            version=np.concatenate([begin, read]),
        )


class FreeRows(NamedTuple):
    """Arguments of `OneShard`."""

    workers: int
    worker: Ints
    step: Ints
    start_s: Floats
    end_s: Floats
    version: Ints


def free_arrivals(cluster: Cluster, seed: int, count: int) -> FreeArrivals | None:
    """The first `count` arrivals; None where they tie in a way that has no closed form."""
    if isinstance(cluster, TimedCluster):
        found = arrivals(cluster.realise(seed), cluster.workers, count)
        if found is None:
            return None
        previous = found.let_by[found.step, found.worker]
        return FreeArrivals(cluster.workers, found.worker, found.step, found.end_s, previous)
    assert isinstance(cluster, Dispatcher)
    dispatch = cluster.dispatch(seed)
    assert isinstance(dispatch, UniformDispatch)
    order = dispatch.order(cluster.workers, count)
    # Sorted by worker, each one's arrivals stand together, in order.
    by_worker = np.argsort(order, kind="stable")
    first = np.searchsorted(order[by_worker], np.arange(cluster.workers))
    step, previous = np.empty((2, count), dtype=np.int64)
    step[by_worker] = np.arange(count) - first[order[by_worker]]
    previous[by_worker[1:]] = by_worker[:-1]
    previous[step == 0] = -1
    return FreeArrivals(cluster.workers, order, step, np.arange(1.0, count + 1), previous)
