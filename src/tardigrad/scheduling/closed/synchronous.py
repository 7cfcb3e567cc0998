"""`Sync` in closed form: round r starts everybody at once and ends with the slowest.

    start(r + 1) = start(r) + max over w of took(r, w)

Rounding is monotone, so the latest of the sums is the sum with the slowest: a running sum, in the
event loop's own order of additions.
"""

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.policies import Sync
from tardigrad.scheduling.closed.one_shard import OneShard


def synchronous(policy: Sync, cluster: TimedCluster, updates: int, seed: int) -> OneShard:
    workers = cluster.workers
    everyone = np.arange(workers)
    took = cluster.realise(seed).step_s(everyone[None, :], np.arange(updates)[:, None])
    starts = np.concatenate([[0.0], np.cumsum(took.max(axis=1))])
    ends = starts[:-1, None] + took
    version = np.repeat(np.arange(updates + 1), workers)
    return OneShard(
        workers=workers,
        worker=np.tile(everyone, updates + 1),
        step=version,
        start_s=np.repeat(starts, workers),
        end_s=np.concatenate([ends.ravel(), np.full(workers, np.nan)]),
        version=version,
        group_rows=np.arange(updates * workers),
        group_size=workers,
        group_time_s=starts[1:],
    )
