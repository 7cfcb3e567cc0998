"""`SoftSync` without waiting in closed form.

Every c arrivals (`SoftSync.group_size`) are a group, whoever brought them, so arrival j belongs to
group ⌊j / c⌋ and its worker reads version ⌊(j + 1) / c⌋: a push that completes its group is applied
before its worker reads. Every push is answered at once, and a group of c counts as c replies, so
there is one reply more than gradients decided on where a push completes none, and c − 1 fewer where
it does. A group's rows stand in order of worker, then step.
"""

import numpy as np

from tardigrad.clusters import Cluster
from tardigrad.policies import SoftSync
from tardigrad.scheduling.closed.free import free_arrivals
from tardigrad.scheduling.closed.one_shard import OneShard


def soft_sync(policy: SoftSync, cluster: Cluster, updates: int, seed: int) -> OneShard | None:
    size = policy.group_size(cluster.workers)
    arrived = free_arrivals(cluster, seed, updates * size)
    if arrived is None:
        return None
    came = np.arange(updates * size)
    version = (came + 1) // size
    completes = (came + 1) % size == 0
    extra = np.where(completes, 1 - size, 1) if size > 1 else np.empty(0, dtype=np.int64)
    told = came[: len(extra)]
    in_order = np.lexsort((arrived.step, arrived.worker, came // size))
    return OneShard(
        **arrived.rows(version)._asdict(),
        group_rows=arrived.row[in_order],
        group_size=size,
        group_time_s=arrived.end_s[size - 1 :: size],
        reply_extra=extra,
        reply_after=told // size,
        reply_applies=completes[told].astype(np.int64),
    )
