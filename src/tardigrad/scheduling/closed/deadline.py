"""`Deadline` by rounds that end with all gradients, or when their time is over (see `rounds`).

The first gradient of a version, at a₁, sets the timer, as the event loop does it: with the round
begun at T it runs out at a₁ + max(0, (T + timeout) − a₁). All that has come by then is in the
round. Every gradient decided on has one reply.

Several shards set their timers together. They run out one after the other at one instant, and a
worker waits for the last of them.
"""

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.policies import Deadline
from tardigrad.scheduling.closed.one_shard import OneShard
from tardigrad.scheduling.closed.rounds import RoundEnd, rounds

REASON = "too late"


def deadline(policy: Deadline, cluster: TimedCluster, updates: int, seed: int) -> OneShard | None:
    made = rounds(cluster.realise(seed), cluster.workers, _within(policy.timeout_s), updates)
    return None if made is None else OneShard(**vars(made), drop_reason=REASON)


def _within(timeout_s: float) -> RoundEnd:
    def ends_with(comes_s: Floats, began_s: float) -> tuple[int, float]:
        first_s = float(comes_s[0])
        over_s = first_s + max(0.0, began_s + timeout_s - first_s)
        came = int(np.searchsorted(comes_s, over_s, side="right"))
        return came, over_s if came < len(comes_s) else float(comes_s[-1])

    return ends_with
