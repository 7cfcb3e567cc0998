"""`SoftSync` with waiting: a loop over groups with a heap of numbers. No closed form is known.

Gradients come in order of (end, row), rows being numbered in order of their starts. Every
c = max(1, ⌊N / groups⌋) of them are a group; when the last of them comes, their workers start the
next rows, in worker order, at the version that the group has made. This is what the event loop
does with messages that take no time, without its messages.
"""

from heapq import heapify, heappop, heappush

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.policies import SoftSync
from tardigrad.scheduling.closed.one_shard import OneShard
from tardigrad.scheduling.sources import DrawnAhead


def waiting_groups(policy: SoftSync, cluster: TimedCluster, updates: int, seed: int) -> OneShard:
    workers = cluster.workers
    size = max(1, workers // policy.groups)
    next_s = DrawnAhead(cluster.realise(seed), workers).next_s
    steps = [1] * workers
    worker, step = list(range(workers)), [0] * workers
    heap = [(next_s(w), w) for w in range(workers)]
    heapify(heap)
    groups: list[list[int]] = []
    ends: list[float] = []
    for _ in range(updates):
        came = [heappop(heap) for _ in range(size)]
        now_s = came[-1][0]
        ends += [end_s for end_s, _ in came]
        rows = [row for _, row in came]
        groups.append(rows)
        row = len(worker)
        for w in sorted([worker[r] for r in rows]):
            k = steps[w]
            steps[w] = k + 1
            worker.append(w)
            step.append(k)
            heappush(heap, (now_s + next_s(w), row))
            row += 1
    who = np.array(worker, dtype=np.int64)
    came_rows = np.array(groups, dtype=np.int64)
    group_time_s = np.array(ends)[size - 1 :: size]
    end_s = np.full(len(who), np.nan)
    end_s[came_rows.ravel()] = ends
    by_worker = np.argsort(who[came_rows], axis=1)
    return OneShard(
        workers=workers,
        worker=who,
        step=np.array(step, dtype=np.int64),
        start_s=np.repeat(np.concatenate([[0.0], group_time_s]), [workers, *[size] * updates]),
        end_s=end_s,
        version=np.repeat(np.arange(updates + 1), [workers, *[size] * updates]),
        group_rows=np.take_along_axis(came_rows, by_worker, axis=1).ravel(),
        group_size=size,
        group_time_s=group_time_s,
    )
