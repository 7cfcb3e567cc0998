"""`BoundedDelay` and `Ringmaster` from the arrivals of workers that never wait.

A push is answered whether it is applied or dropped, so arrivals are those of `Async`. What is left
is which of them are applied, and that is a recurrence without a closed form of its own: with v the
version and r(w) what worker w read last, arrival j of worker w

    v ← v + 1 if v − r(w) ≤ max_delay, else it is dropped;    r(w) ← v.

Nothing is dropped where no arrival of `Async` is later than the bound, which is seen at once: the
first drop would have to be of one that is. Otherwise the recurrence is run over the arrivals.
"""

import numpy as np

from tardigrad.clusters import Cluster
from tardigrad.core.arrays import Ints
from tardigrad.policies import BoundedDelay, Ringmaster
from tardigrad.scheduling.closed.free import FreeArrivals, free_arrivals
from tardigrad.scheduling.closed.one_shard import OneShard


def bounded_delay(
    policy: BoundedDelay | Ringmaster, cluster: Cluster, updates: int, seed: int
) -> OneShard | None:
    count = updates
    while True:
        arrived = free_arrivals(cluster, seed, count)
        if arrived is None:
            return None
        version = _versions(arrived, policy.max_delay)
        if version[-1] >= updates:
            break
        # As many more as these tell; some at least, because two rounds of all make one update.
        count += max(2 * cluster.workers, (updates - int(version[-1])) * count // int(version[-1]))
    needed = int(np.searchsorted(version, updates)) + 1
    arrived = FreeArrivals(
        arrived.workers,
        arrived.worker[:needed],
        arrived.step[:needed],
        arrived.end_s[:needed],
        arrived.previous[:needed],
    )
    version = version[:needed]
    applied = np.diff(version, prepend=0) == 1
    row, end_s = arrived.row, arrived.end_s
    return OneShard(
        **arrived.rows(version)._asdict(),
        group_rows=row[applied],
        group_time_s=end_s[applied],
        drop_row=row[~applied],
        drop_time_s=end_s[~applied],
        drop_after=version[~applied],
        drop_reason=policy.reason,
    )


def _versions(arrived: FreeArrivals, max_delay: int) -> Ints:
    """The version after each arrival."""
    came = np.arange(len(arrived.worker))
    if (came - (arrived.previous + 1)).max() <= max_delay:
        return came + 1
    version, read, out = 0, [0] * arrived.workers, []
    for worker in arrived.worker.tolist():
        if version - read[worker] <= max_delay:
            version += 1
        read[worker] = version
        out.append(version)
    return np.array(out, dtype=np.int64)
