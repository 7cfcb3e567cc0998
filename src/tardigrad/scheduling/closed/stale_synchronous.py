"""`StaleSynchronous` in closed form: a recursion over steps, whole rows of workers at a time.

A worker that has pushed step k − 1 begins step k when everybody has pushed step k − bound − 1; with
M(j) the end of the slowest's step j it starts at max(end(k − 1, w), M(k − bound − 1)). All of that,
and the order of arrivals, is in `arrivals`. Arrival j makes version j + 1, and a gradient reads the
version that the arrival made which let it start: its worker's own, or the slowest's.

The push half answers those that an arrival lets go in worker order, and holds nobody back who is
within the bound, so that rows start in order of (arrival that let it, worker). An arrival that lets
nobody go, or several, has that many replies fewer or more than the one gradient it decides on.
"""

import math

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.policies import StaleSynchronous
from tardigrad.scheduling.closed.arrivals import LATER, arrivals
from tardigrad.scheduling.closed.one_shard import OneShard


def stale_synchronous(
    policy: StaleSynchronous, cluster: TimedCluster, updates: int, seed: int
) -> OneShard | None:
    workers = cluster.workers
    bound = math.inf if policy.bound is None else policy.bound
    arrived = arrivals(cluster.realise(seed), workers, updates, bound)
    if arrived is None:
        return None
    let_by = arrived.let_by.ravel()
    started = np.nonzero(let_by != LATER)[0]
    started = started[np.lexsort((started % workers, let_by[started]))]
    let_by = let_by[started]
    row = np.empty(arrived.place.size, dtype=np.int64)
    row[started] = np.arange(len(started))
    pushed = row[arrived.step * workers + arrived.worker]
    end_s = np.full(len(started), np.nan)
    end_s[pushed] = arrived.end_s
    extra = np.bincount(let_by[workers:], minlength=updates) - 1
    told = np.nonzero(extra)[0]
    return OneShard(
        workers=workers,
        worker=started % workers,
        step=started // workers,
        start_s=np.where(let_by < 0, 0.0, arrived.end_s[let_by]),
        end_s=end_s,
        version=let_by + 1,
        group_rows=pushed,
        group_time_s=arrived.end_s,
        reply_extra=extra[told],
        reply_after=told,
        reply_applies=np.ones(len(told), dtype=np.int64),
    )
