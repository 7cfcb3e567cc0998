"""Whole schedules at once, where nobody's waiting depends on more than a sort or a maximum.

The event loop is the reference; tests hold these equal to it.
"""

from typing import Any

import numpy as np

from tardigrad.clusters import Cluster, Dispatcher, TimedCluster, UniformDispatch
from tardigrad.core.arrays import Floats, Ints
from tardigrad.policies import Async, Policy, Sync
from tardigrad.scheduling.schedule import Schedule


def bulk_schedule(
    policy: Policy, cluster: Cluster, updates: int, seed: int, shards: int, about: dict[str, Any]
) -> Schedule | None:
    """The schedule in closed form, or None where there is none."""
    if not has_closed_form(policy, cluster):
        return None
    if isinstance(cluster, TimedCluster):
        if policy == Sync():
            return _synchronous(cluster, updates, seed, shards, about)
        arrivals = _arrivals(cluster, updates, seed)
        if arrivals is None:
            return None
        return _asynchronous(*arrivals, cluster.workers, shards, False, about)
    assert isinstance(cluster, Dispatcher)
    dispatch = cluster.dispatch(seed)
    assert isinstance(dispatch, UniformDispatch)
    order = dispatch.order(cluster.workers, updates)
    ends = np.arange(1.0, updates + 1)
    return _asynchronous(order, ends, cluster.workers, shards, True, about)


def has_closed_form(policy: Policy, cluster: Cluster) -> bool:
    """Whether `bulk_schedule` has one, unless workers tie (see `_arrivals`)."""
    if isinstance(cluster, TimedCluster):
        return cluster.undisturbed and policy in (Async(wait=True), Sync())
    return isinstance(cluster, Dispatcher) and cluster.uniform and policy == Async(wait=True)


def _arrivals(cluster: TimedCluster, updates: int, seed: int) -> tuple[Ints, Floats] | None:
    """The first `updates` arrivals of workers that never wait: (who, when).

    Each worker's arrivals are the running sum of its own times. Enough steps are drawn that every
    worker's last one lies past the end sought; while one falls short, all get twice as many.

    Of two that arrive at the same instant the event loop takes first the one that started first.
    Sorting by the time of the start gets this right wherever those differ; where even they are
    equal and the guess (worker order) contradicts itself, the answer is None.
    """
    times = cluster.realise(seed)
    workers = np.arange(cluster.workers)
    steps = updates // cluster.workers + 2
    ends = np.cumsum(times.step_s(workers[:, None], np.arange(steps)[None, :]), axis=1)
    pool_end, pool_who, pool_start = ends.ravel(), np.repeat(workers, steps), _starts(ends, 0.0)
    last = ends[:, -1]
    while True:
        bound = np.partition(pool_end, updates - 1)[updates - 1]
        if (last > bound).all():
            break
        more = times.step_s(workers[:, None], np.arange(steps, 2 * steps)[None, :])
        more[:, 0] += last  # the running sum goes on from where it stood, added in the same order
        more = np.cumsum(more, axis=1)
        pool_end = np.concatenate([pool_end, more.ravel()])
        pool_who = np.concatenate([pool_who, np.repeat(workers, steps)])
        pool_start = np.concatenate([pool_start, _starts(more, last)])
        last = more[:, -1]
        steps *= 2
    within = np.nonzero(pool_end <= bound)[0]  # `updates` of them, or more where the last are tied
    order = within[np.argsort(pool_end[within], kind="stable")]
    if (np.diff(pool_end[order]) == 0).any():
        order = within[np.lexsort((pool_who[within], pool_start[within], pool_end[within]))]
        who = pool_who[order].astype(np.int64)
        previous = _previous_of_same(who)
        started = np.where(previous < 0, who, cluster.workers + previous)  # rank among all starts
        if ((np.diff(pool_end[order]) == 0) & (np.diff(started) < 0)).any():
            return None
    first = order[:updates]
    return pool_who[first].astype(np.int64), pool_end[first]


def _starts(ends: Floats, first: float | Floats) -> Floats:
    """When each of these steps began: the end of the one before it."""
    starts = np.empty_like(ends)
    starts[:, 0], starts[:, 1:] = first, ends[:, :-1]
    return starts.ravel()


def _asynchronous(
    order: Ints, ends: Floats, workers: int, shards: int, clockless: bool, about: dict[str, Any]
) -> Schedule:
    """Rows 0..N−1 start at version 0; arrival j starts row N + j at version j + 1."""
    updates = len(order)
    previous = _previous_of_same(order)
    applied_row = np.where(previous < 0, order, workers + previous)
    worker = np.concatenate([np.arange(workers), order])
    rows = workers + updates
    end_s = np.full(rows, np.nan)
    end_s[applied_row] = ends
    step = np.zeros(rows, dtype=np.int64)
    step[workers:] = _occurrence(order) + 1
    version = np.concatenate([np.zeros(workers, dtype=np.int64), np.arange(1, updates + 1)])
    groups = updates * shards
    return Schedule(
        workers=workers,
        shards=shards,
        worker=worker,
        step=step,
        start_s=np.concatenate([np.zeros(workers), ends]),
        end_s=end_s,
        stamp=version,
        read=np.repeat(version[:, None], shards, axis=1),
        group_shard=np.tile(np.arange(shards), updates),
        group_time_s=np.repeat(ends, shards),
        group_scale=np.ones(groups),
        group_start=np.arange(groups + 1),
        group_rows=np.repeat(applied_row, shards),
        clockless=clockless,
        about=about,
        **no_losses(),
    )


def _synchronous(
    cluster: TimedCluster, updates: int, seed: int, shards: int, about: dict[str, Any]
) -> Schedule:
    """Round r starts everybody at once and ends with the slowest."""
    workers = cluster.workers
    everyone = np.arange(workers)
    took = cluster.realise(seed).step_s(everyone[None, :], np.arange(updates)[:, None])
    # Rounding is monotone, so the latest of the sums is the sum with the slowest: a running sum, in
    # the event loop's own order of additions.
    starts = np.concatenate([[0.0], np.cumsum(took.max(axis=1))])
    ends = starts[:-1, None] + took
    version = np.repeat(np.arange(updates + 1), workers)
    groups = updates * shards
    members = np.repeat(np.arange(updates * workers).reshape(updates, workers), shards, axis=0)
    return Schedule(
        workers=workers,
        shards=shards,
        worker=np.tile(everyone, updates + 1),
        step=version,
        start_s=np.repeat(starts, workers),
        end_s=np.concatenate([ends.ravel(), np.full(workers, np.nan)]),
        stamp=version,
        read=np.repeat(version[:, None], shards, axis=1),
        group_shard=np.tile(np.arange(shards), updates),
        group_time_s=np.repeat(starts[1:], shards),
        group_scale=np.ones(groups),
        group_start=np.arange(groups + 1) * workers,
        group_rows=members.ravel()[: groups * workers],
        about=about,
        **no_losses(),
    )


def _previous_of_same(order: Ints) -> Ints:
    """For each arrival, the index of the same worker's one before, or −1."""
    by_worker = np.argsort(order, kind="stable")
    out = np.full(len(order), -1, dtype=np.int64)
    same = order[by_worker[1:]] == order[by_worker[:-1]]
    out[by_worker[1:][same]] = by_worker[:-1][same]
    return out


def _occurrence(order: Ints) -> Ints:
    """For each arrival, how many the same worker had before."""
    by_worker = np.argsort(order, kind="stable")
    sorted_order = order[by_worker]
    first = np.searchsorted(sorted_order, sorted_order, side="left")
    out = np.empty(len(order), dtype=np.int64)
    out[by_worker] = np.arange(len(order)) - first
    return out


def no_losses() -> dict[str, Any]:
    ints, floats = np.empty(0, dtype=np.int64), np.empty(0)
    return {
        "drop_row": ints,
        "drop_shard": ints,
        "drop_time_s": floats,
        "drop_reason": ints,
        "drop_after": ints,
        "member_worker": ints,
        "member_joined": ints,
        "member_time_s": floats,
        "member_after": ints,
    }
