"""`Backup` by rounds of the first N − backups gradients (see `rounds`).

A dropped gradient's worker is answered at once, and a group's when it is applied: one reply for
each gradient decided on. With backups = 0 nobody is late, and the rounds are those of `Sync`.
"""

from tardigrad.clusters import TimedCluster
from tardigrad.policies import Backup
from tardigrad.scheduling.closed.one_shard import OneShard
from tardigrad.scheduling.closed.rounds import first, rounds

REASON = "old version"


def backup(policy: Backup, cluster: TimedCluster, updates: int, seed: int) -> OneShard | None:
    quota = cluster.workers - policy.backups
    made = rounds(cluster.realise(seed), cluster.workers, first(quota), updates)
    return None if made is None else OneShard(**vars(made), drop_reason=REASON)
