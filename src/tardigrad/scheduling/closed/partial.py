"""`Partial` by rounds of the first `push` gradients, where it sets no timer and pulls every block.

A shard applies as soon as `push` gradients of its version are there (`push` of None: all workers'),
at `push` times the learning rate, and broadcasts. Who is waiting starts with that, in worker order.
Who computes has the newest version when it has finished, and with catch_up jumps to that round: it
starts at once, and its push is dropped as old. So these are the rounds of `Backup` (see `rounds`).

A worker that does not catch up stamps its next push with a round that is over. This is another
schedule, unless nobody falls behind because all are waited for.

Replies are other than `Backup`'s: a broadcast has N of them for `push` gradients, and a dropped
gradient has none.
"""

import math

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.core.arrays import Ints
from tardigrad.policies import Partial
from tardigrad.scheduling.closed.one_shard import OneShard
from tardigrad.scheduling.closed.rounds import Rounds, first, rounds

REASON = "old stamp"


def quota(policy: Partial, workers: int) -> int:
    return workers if policy.push is None else policy.push


def in_rounds(policy: Partial, workers: int, shards: int) -> bool:
    """Whether the schedule is one of rounds."""
    every_block = math.ceil(round(policy.pull * shards, 9)) == shards  # else see `PullShare`
    keeps_up = policy.catch_up or quota(policy, workers) == workers
    return every_block and keeps_up and not policy.push_timeout_s


def partial(policy: Partial, cluster: TimedCluster, updates: int, seed: int) -> OneShard | None:
    workers, waited = cluster.workers, quota(policy, cluster.workers)
    made = rounds(cluster.realise(seed), workers, first(waited), updates)
    if made is None:
        return None
    extra, after, applies = _replies(made, waited)
    return OneShard(
        **vars(made),
        group_scale=float(waited),
        drop_reason=REASON,
        reply_extra=extra,
        reply_after=after,
        reply_applies=applies,
    )


def _replies(made: Rounds, waited: int) -> tuple[Ints, Ints, Ints]:
    """In each round −1 for every gradient dropped, then what the broadcast has too many."""
    updates = len(made.group_time_s)
    after, extra = made.drop_after, np.full(len(made.drop_after), -1)
    applies = np.zeros(len(after), dtype=np.int64)
    if made.workers > waited:
        after = np.concatenate([after, np.arange(updates)])
        extra = np.concatenate([extra, np.full(updates, made.workers - waited)])
        applies = np.concatenate([applies, np.ones(updates, dtype=np.int64)])
        in_turn = np.lexsort((applies, after))
        after, extra, applies = after[in_turn], extra[in_turn], applies[in_turn]
    return extra, after, applies
