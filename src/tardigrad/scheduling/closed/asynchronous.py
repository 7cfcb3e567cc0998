"""`Async` in closed form.

Every arrival is an update of its own: arrival j makes version j + 1. Its worker reads that, or with
wait=False version j, which its push met.
"""

import numpy as np

from tardigrad.clusters import Cluster
from tardigrad.policies import Async
from tardigrad.scheduling.closed.free import free_arrivals
from tardigrad.scheduling.closed.one_shard import OneShard


def asynchronous(policy: Async, cluster: Cluster, updates: int, seed: int) -> OneShard | None:
    arrived = free_arrivals(cluster, seed, updates)
    if arrived is None:
        return None
    return OneShard(
        **arrived.rows(np.arange(updates) + int(policy.wait))._asdict(),
        group_rows=arrived.row,
        group_time_s=arrived.end_s,
    )
