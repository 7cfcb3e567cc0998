"""`Partial` over a network, where it sets no timer and pulls every block: a loop over rounds, all
workers and shards at a time.

Shard s ends round v with the `push`-th gradient stamped v, at E(v, s), and broadcasts version
v + 1, which reaches worker w at B(v, w, s) = max(E(v, s) + pull, B(v − 1, w, s)). A worker that
computes round u until F starts its next gradient when it has every block of round u + 1:

    start = max(F, max over s of B(u, w, s)),

stamped with the newest round of which it has every block then, and reads what has come by then. It
does not wait for its pushes to come, so that one may be held up behind the one before it too.

Round v is found from those before: everybody who has not started it yet is taken to. Whoever has
every block of round v + 1 when it starts does not; its gradient would have come after the end of
every shard's round v, so that the ends stay as they are. It is tried again with v + 1.

There is no closed form where two gradients come at the same instant, or start at the same and not
by the same broadcasts.
"""

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.core.arrays import Floats, Ints
from tardigrad.policies import Partial
from tardigrad.scheduling.closed.delays_ahead import DelaysAhead
from tardigrad.scheduling.closed.partial import REASON, quota
from tardigrad.scheduling.closed.rounds import StepsAhead
from tardigrad.scheduling.closed.rounds_found import (
    RoundsFound,
    StartedRows,
    schedule_of,
    shard_turns,
)
from tardigrad.scheduling.schedule import Schedule


def networked_partial(
    policy: Partial, cluster: TimedCluster, updates: int, seed: int, shards: int
) -> Schedule | None:
    """None: there is no closed form."""
    assert cluster.network is not None
    workers, waited = cluster.workers, quota(policy, cluster.workers)
    messages = cluster.network.realise(seed, workers, shards)
    push, pull = (DelaysAhead(messages, way, workers) for way in (False, True))
    steps = StepsAhead(cluster.realise(seed), workers)
    free_s, released_s = np.zeros(workers), np.zeros(workers)
    """When each has finished, and when it has every block of the round after."""
    sent_s, before_s = np.zeros((2, workers, shards))
    """When shards have sent it, and when each worker's last gradient has come to them."""
    last = np.zeros(workers, dtype=np.int64)
    started: list[StartedRows] = []
    ends: list[Floats] = []
    broadcasts: list[Floats] = []
    for version in range(updates):
        start_s = np.maximum(free_s, released_s)
        finish_s = start_s + steps.next_s(steps.everyone)
        came_s = finish_s[:, None] + push.at(_everywhere(steps.made, shards))
        came_s = np.maximum(came_s, before_s)
        end_s = np.partition(came_s, waited - 1, axis=0)[waited - 1]
        reaches_s = end_s + pull.at(np.full((workers, shards), version))
        if broadcasts:
            reaches_s = np.maximum(reaches_s, broadcasts[-1])
        complete_s = reaches_s.max(axis=1)
        waits = released_s >= free_s
        # One that waits starts with what came first, where more comes with it at one instant.
        who = np.nonzero((start_s < complete_s) | (waits & (start_s == complete_s)))[0]
        started.append(
            StartedRows(
                worker=who,
                step=steps.made[who],
                version=np.full(len(who), version),
                start_s=start_s[who],
                end_s=finish_s[who],
                came_s=came_s[who],
                pulled_s=np.where(waits[who, None], sent_s[who], np.nan),
                last=last[who],
            )
        )
        steps.made[who] += 1
        free_s[who], released_s[who], sent_s[who] = finish_s[who], complete_s[who], end_s
        before_s[who] = came_s[who]
        turns = shard_turns(end_s, np.full(shards, np.nan))
        last[who] = np.where(reaches_s == complete_s[:, None], turns, -1).max(axis=1)[who]
        ends.append(end_s)
        broadcasts.append(reaches_s)
    rows = StartedRows._make(np.concatenate(part) for part in zip(*started, strict=True))
    end_s = np.array(ends)
    found = RoundsFound(
        rows,
        end_s,
        np.full(end_s.shape, np.nan),
        asked=[],
        read=_read(rows, broadcasts),
        scale=float(waited),
        answered_by_all=True,
    )
    return schedule_of(workers, shards, REASON, found)


def _everywhere(numbers: Ints, shards: int) -> Ints:
    return np.broadcast_to(numbers[:, None], (len(numbers), shards))


def _read(rows: StartedRows, broadcasts: list[Floats]) -> Ints:
    """Of each shard, the newest version that has come when a gradient starts."""
    reaches_s = np.array(broadcasts)
    read = np.repeat(rows.version[:, None], reaches_s.shape[2], axis=1)
    waits = np.isfinite(rows.pulled_s[:, 0])
    row, shard = np.nonzero(np.ones(read.shape, dtype=bool))
    while len(row):
        known = read[row, shard] < len(reaches_s)
        row, shard = row[known], shard[known]
        next_s, start_s = reaches_s[read[row, shard], rows.worker[row], shard], rows.start_s[row]
        newer = (next_s < start_s) | (~waits[row] & (next_s == start_s))
        row, shard = row[newer], shard[newer]
        read[row, shard] += 1
    return read
