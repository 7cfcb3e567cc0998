"""`SoftSync` with waiting: many groups at a time, as far as they do not depend on each other.

Gradients come in order of (end, row), rows being numbered in order of their starts. Every
c of them (`SoftSync.group_size`) are a group; when the last of them comes, at t, their workers
start the next rows, in worker order, at the version that the group has made.

No closed form is known, but this: of the N gradients that are under way, in order, the first c are
the next group, the second c the group after that, and so on, as long as no gradient comes before
them that an earlier one of these groups started. So groups 1 to a are as they stand where

    t(j) ≤ min over i < j of the ends of what group i starts,    j = 2 … a,

an older gradient being first where two end together. Then those a · c gradients are replaced by
what they started, and so on. Where workers are few, so are the groups at a time, and a heap of
numbers takes them one by one (`_one_by_one`).
"""

from heapq import heapify, heappop, heappush

import numpy as np

from tardigrad.clusters import StepTimes, TimedCluster
from tardigrad.core.arrays import Floats, Ints
from tardigrad.core.collector import paused_collector
from tardigrad.policies import SoftSync
from tardigrad.scheduling.closed.one_shard import OneShard
from tardigrad.scheduling.sources import DrawnAhead

MANY = 200
"""From so many workers on, groups are made many at a time (measured: as fast at 40 for Gamma times,
at 300 for exponential ones, 5 and 1.7 times as fast at 1,000)."""
AHEAD = 16
"""How many of a worker's steps are drawn at a time."""


def waiting_groups(policy: SoftSync, cluster: TimedCluster, updates: int, seed: int) -> OneShard:
    workers = cluster.workers
    size = policy.group_size(workers)
    times = cluster.realise(seed)
    make = _many_at_a_time if workers >= MANY else _one_by_one
    came_rows, came_s, started = make(times, workers, size, updates)
    worker = np.concatenate([np.arange(workers), started.ravel()])
    group_time_s = came_s[:, -1]
    end_s = np.full(len(worker), np.nan)
    end_s[came_rows] = came_s
    by_worker = np.argsort(worker[came_rows], axis=1)
    each = [workers, *[size] * updates]
    return OneShard(
        workers=workers,
        worker=worker,
        step=_steps(worker),
        start_s=np.repeat(np.concatenate([[0.0], group_time_s]), each),
        end_s=end_s,
        version=np.repeat(np.arange(updates + 1), each),
        group_rows=np.take_along_axis(came_rows, by_worker, axis=1).ravel(),
        group_size=size,
        group_time_s=group_time_s,
    )


def _steps(worker: Ints) -> Ints:
    """Of each row: how many rows its worker has started before."""
    by_worker = np.argsort(worker, kind="stable")
    counts = np.bincount(worker)
    step = np.empty(len(worker), dtype=np.int64)
    step[by_worker] = np.arange(len(worker)) - np.repeat(np.cumsum(counts) - counts, counts)
    return step


def _many_at_a_time(
    times: StepTimes, workers: int, size: int, updates: int
) -> tuple[Ints, Floats, Ints]:
    """Of each group the rows that came and when, in order, and the workers that start then."""
    ahead = _Ahead(times, workers)
    rows, came, started = (np.empty((updates, size), dtype=kind) for kind in ("q", "d", "q"))
    # What is under way, in order of (end, row).
    under_way = np.arange(workers)
    who, end_s = under_way, ahead.next_s(under_way)
    ahead.take(under_way)
    order = np.argsort(end_s, kind="stable")
    made, tried = 0, workers // size
    while True:
        who, end_s, under_way = who[order], end_s[order], under_way[order]
        tried = min(tried, workers // size, updates - made)
        came_s = end_s[: tried * size].reshape(tried, size)
        starts = np.sort(who[: tried * size].reshape(tried, size), axis=1)
        last_s = came_s[:, -1]
        ends = last_s[:, None] + ahead.next_s(starts)
        overtaken = last_s[1:] > np.minimum.accumulate(ends.min(axis=1))[:-1]
        fit = int(overtaken.argmax()) + 1 if overtaken.any() else tried
        groups, taken = slice(made, made + fit), fit * size
        rows[groups] = under_way[:taken].reshape(fit, size)
        came[groups], started[groups] = came_s[:fit], starts[:fit]
        row = workers + made * size
        made += fit
        if made == updates:
            return rows, came, started
        fresh = starts[:fit].ravel()
        ahead.take(fresh)
        who = np.concatenate([who[taken:], fresh])
        end_s = np.concatenate([end_s[taken:], ends[:fit].ravel()])
        under_way = np.concatenate([under_way[taken:], np.arange(row, row + taken)])
        # Rows are in order in both parts, so a stable sort leaves them so where ends tie.
        order = np.argsort(end_s, kind="stable")
        tried = 2 * fit + 1  # as many as fit, and some more: the others would be in vain


class _Ahead:
    """Step times of all workers, some steps ahead of each."""

    def __init__(self, times: StepTimes, workers: int) -> None:
        self.times = times
        self._drawn = times.step_s(np.arange(workers)[:, None], np.arange(AHEAD)[None, :])
        self._at = np.zeros(workers, dtype=np.int64)
        self._from = np.zeros(workers, dtype=np.int64)

    def next_s(self, workers: Ints) -> Floats:
        """Of the next step of each."""
        drawn: Floats = self._drawn[workers, self._at[workers]]
        return drawn

    def take(self, workers: Ints) -> None:
        """These have begun it."""
        self._at[workers] += 1
        if (self._at[workers] < AHEAD).all():
            return
        few = np.nonzero(self._at > AHEAD // 2)[0]  # and who would be next to have none left
        self._from[few] += self._at[few]
        self._at[few] = 0
        steps = self._from[few, None] + np.arange(AHEAD)
        self._drawn[few] = self.times.step_s(few[:, None], steps)


def _one_by_one(
    times: StepTimes, workers: int, size: int, updates: int
) -> tuple[Ints, Floats, Ints]:
    """The same."""
    next_s = DrawnAhead(times, workers).next_s
    worker = list(range(workers))
    heap = [(next_s(w), w) for w in range(workers)]
    heapify(heap)
    came: list[tuple[float, int]] = []
    with paused_collector():
        for _ in range(updates):
            group = [heappop(heap) for _ in range(size)]
            came += group
            now_s = group[-1][0]
            row = len(worker)
            starts = sorted([worker[r] for _, r in group])
            worker += starts
            for w in starts:
                heappush(heap, (now_s + next_s(w), row))
                row += 1
    rows = np.array([row for _, row in came], dtype=np.int64).reshape(updates, size)
    came_s = np.array([end_s for end_s, _ in came]).reshape(updates, size)
    return rows, came_s, np.array(worker[workers:], dtype=np.int64).reshape(updates, size)
