"""`Async`, `BoundedDelay`, `Ringmaster`, `StaleSynchronous` and `Sync` over a network.

This is a recursion over steps, all workers and shards at a time, and then a sort of all arrivals.

Worker w's gradient of step k comes to shard s, is answered, and the worker starts when all shards'
answers have come:

    came(k, w, s)     = end(k, w) + push(k, w, s),            end(k, w) = start(k, w) + took(k, w)
    answered(k, w, s) = max(came(k, w, s), max over w' of came(k − bound, w', s))
    start(k + 1, w)   = max over s of (answered(k, w, s) + pull(k, w, s))

Without a bound a push is answered when it comes. With bound 0 it is answered when everybody's has
come, which is when `Sync` answers. Every push has one answer, and a worker pushes again only when
it has all of them, so that nothing waits behind an earlier message on its way, and the k-th message
of a pair is that of step k. A shard that has made its last version answers as before.

The event loop takes arrivals in order of time; of those that one push makes at the same instant,
shard 0's first. Answers are sent in order of the arrivals that let them, then of workers, so that
of two workers which start at the same instant that one is first whose last answer was. An arrival
at the same instant as another worker's, or as the end of the schedule, is left to the event loop:
there is no closed form then.
"""

import math
from typing import NamedTuple

import numpy as np

from tardigrad.clusters import Messages, StepTimes, TimedCluster
from tardigrad.core.arrays import Floats, Ints
from tardigrad.policies import Async, BoundedDelay, Policy, Ringmaster, StaleSynchronous, Sync
from tardigrad.scheduling.closed.arrivals import LATER
from tardigrad.scheduling.schedule import Schedule


def steady(cluster: TimedCluster) -> bool:
    """Whether messages take time, but nobody leaves and no shard stops."""
    network = cluster.network
    return network is not None and not network.outages and not cluster.absences


def goes_over_network(policy: Policy) -> bool:
    """Whether `networked` is for this."""
    return policy == Async() or type(policy) in (BoundedDelay, Ringmaster, StaleSynchronous, Sync)


def networked(
    policy: Policy, cluster: TimedCluster, updates: int, seed: int, shards: int
) -> Schedule | None:
    assert cluster.network is not None
    workers = cluster.workers
    bound, size = math.inf, 1
    if isinstance(policy, Sync):
        bound, size = 0, workers
    elif isinstance(policy, StaleSynchronous) and policy.bound is not None:
        bound = policy.bound
    course = _Course(
        cluster.realise(seed), cluster.network.realise(seed, workers, shards), workers, bound
    )
    last_s = course.until(updates * size)
    found = _in_order(course, updates * size, last_s)
    if found is None:
        return None
    came = found.order
    step, worker, shard = np.unravel_index(came, course.came.shape)
    rank = found.rank.ravel()[came]
    applied = (rank + 1) % size == 0 if size > 1 else rank < updates
    rows = _rows(course, found, updates, size, last_s)
    group_rows = rows.row[step[applied], worker[applied]][:, None]
    if size > 1:
        group_rows = rows.row[step[applied]]
    if isinstance(policy, BoundedDelay | Ringmaster):
        late = rank - rows.read[rows.row[step, worker], shard]
        if (late[applied] > policy.max_delay).any():
            return None  # the first of these would be dropped
    extra = np.zeros(0, dtype=np.int64)
    if size == 1:
        answers = np.bincount(found.let_place[found.let_place < len(came)], minlength=len(came))
        extra = answers - applied
    told = np.nonzero(extra)[0]
    return Schedule(
        workers=workers,
        shards=shards,
        worker=rows.worker,
        step=rows.step,
        start_s=rows.start_s,
        end_s=rows.end_s,
        stamp=rows.read.max(axis=1),
        read=rows.read,
        group_shard=shard[applied],
        group_time_s=course.came.ravel()[came][applied],
        group_scale=np.ones(len(group_rows)),
        group_start=np.arange(len(group_rows) + 1) * size,
        group_rows=group_rows.ravel(),
        reply_shard=shard[told],
        reply_extra=extra[told],
        reply_after=(np.cumsum(applied) - applied)[told],
    )


class _Course:
    """The recursion: when steps start and end, when they come to each shard, and when the answers
    are back. Steps first, then workers, then shards."""

    def __init__(self, times: StepTimes, messages: Messages, workers: int, bound: float) -> None:
        self.times, self.messages = times, messages
        self.bound = bound
        self.everyone = np.arange(workers)
        self.start = np.zeros((1, workers))
        """One step more than of the others."""
        self.end: Floats = np.empty((0, workers))
        self.came: Floats = np.empty((0, workers, messages.shards))
        self.back: Floats = np.empty((0, workers, messages.shards))
        self._slowest: list[Floats] = []

    def until(self, needed: int) -> float:
        """Go on until every shard has had so many arrivals, and everybody's next start is after
        that; the time of the last of these."""
        workers = len(self.everyone)
        self._extend(-(-needed // workers) + 1)
        while True:
            by_shard = self.came.reshape(-1, self.came.shape[2])
            last_s = float(np.partition(by_shard, needed - 1, axis=0)[needed - 1].max())
            if self.start[-1].min() >= last_s:
                return last_s
            self._extend(max(2, len(self.end) // 8))

    def _extend(self, steps: int) -> None:
        done = len(self.end)
        asked = np.arange(done, done + steps)
        took = self.times.step_s(self.everyone[None, :], asked[:, None])
        push, pull = (
            np.moveaxis(self.messages.times(way, self.everyone, asked), 2, 0)
            for way in (False, True)
        )
        start, end, came, back = [self.start[-1]], [], [], []
        for i, k in enumerate(asked.tolist()):
            end.append(start[-1] + took[i])
            came.append(end[-1][:, None] + push[i])
            self._slowest.append(came[-1].max(axis=0))
            answered = came[-1]
            if k >= self.bound:
                answered = np.maximum(answered, self._slowest[k - int(self.bound)])
            back.append(answered + pull[i])
            start.append(back[-1].max(axis=1))
        self.start = np.concatenate([self.start, start[1:]])
        self.end = np.concatenate([self.end, end])
        self.came = np.concatenate([self.came, came])
        self.back = np.concatenate([self.back, back])


class _InOrder(NamedTuple):
    order: Ints
    """All arrivals until the last shard is done, as places in a table of (step, worker, shard)."""
    rank: Ints
    """Of each arrival among its shard's; `LATER` if it is not among them."""
    let_place: Ints
    """Where in `order` the arrival is that lets each be answered,"""
    let_rank: Ints
    """and its rank."""


def _in_order(course: _Course, needed: int, last_s: float) -> _InOrder | None:
    shape, flat = course.came.shape, course.came.ravel()
    shards = shape[2]
    within = np.nonzero(flat <= last_s)[0]
    order = within[np.argsort(flat[within], kind="stable")]
    tied = np.diff(flat[order]) == 0
    if (tied & (np.diff(order // shards) != 0)).any():
        return None
    if (course.start == last_s).any() or (course.end == last_s).any():
        return None
    by_shard = np.argsort(order % shards, kind="stable")
    counts = np.bincount(order % shards, minlength=shards)
    in_turn = np.concatenate([np.arange(count) for count in counts])
    rank, place = np.full((2, len(flat)), LATER)
    rank[order[by_shard]] = in_turn
    ends = int(np.nonzero(rank[order] == needed - 1)[0].max()) + 1
    rank[order[ends:]] = LATER
    order = order[:ends]
    place[order] = np.arange(ends)
    let = [_let_by(table.reshape(shape), course.bound) for table in (place, rank)]
    return _InOrder(order, rank.reshape(shape), *let)


def _let_by(table: Ints, bound: float) -> Ints:
    """Of what lets each be answered: itself, or the last that it has to wait for."""
    if math.isinf(bound):
        return table
    out, waits = table.copy(), int(bound)
    steps = len(table) - waits
    if steps > 0:
        np.maximum(out[waits:], table[:steps].max(axis=1)[:, None, :], out=out[waits:])
    return out


class _Rows(NamedTuple):
    worker: Ints
    step: Ints
    start_s: Floats
    end_s: Floats
    read: Ints
    row: Ints
    """Of each (step, worker)."""


def _rows(course: _Course, found: _InOrder, updates: int, size: int, last_s: float) -> _Rows:
    """Gradients that start before the end, in order of (start, arrival that let the last answer be
    sent, worker)."""
    start, shape = course.start[:-1], course.start[:-1].shape
    steps, workers = shape
    let_last = np.full(shape, -1)
    let_last[1:] = np.where(course.back == course.start[1:, :, None], found.let_place, -1).max(
        axis=2
    )[:-1]
    step, worker = np.nonzero(start < last_s)
    in_turn = np.lexsort((worker, let_last[step, worker], start[step, worker]))
    step, worker = step[in_turn], worker[in_turn]
    row = np.full(shape, -1)
    row[step, worker] = np.arange(len(step))
    version = np.zeros((steps, workers, found.rank.shape[2]), dtype=np.int64)
    version[1:] = np.minimum(found.let_rank[:-1] // size + 1, updates)
    end_s = course.end[step, worker]
    end_s[end_s > last_s] = np.nan
    return _Rows(worker, step, start[step, worker], end_s, version[step, worker], row)
