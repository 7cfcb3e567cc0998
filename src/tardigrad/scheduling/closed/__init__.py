"""Whole schedules without the event loop, where what a policy waits for can be written down.

The event loop is the reference; tests hold these equal to it, to the last array. Each file has the
formula and why it is the event loop's. All are for workers that never leave, and all but
those of `networked…` for messages that take no time.
"""

from dataclasses import replace
from typing import Any

from tardigrad.clusters import Cluster, Dispatcher, TimedCluster
from tardigrad.policies import (
    Async,
    Backup,
    BoundedDelay,
    Deadline,
    Partial,
    Policy,
    Quorum,
    Ringmaster,
    SoftSync,
    StaleSynchronous,
    Sync,
)
from tardigrad.scheduling.closed.asynchronous import asynchronous
from tardigrad.scheduling.closed.backup import backup
from tardigrad.scheduling.closed.bounded_delay import bounded_delay
from tardigrad.scheduling.closed.deadline import deadline
from tardigrad.scheduling.closed.networked import goes_over_network, networked, steady
from tardigrad.scheduling.closed.networked_groups import networked_groups
from tardigrad.scheduling.closed.networked_partial import networked_partial
from tardigrad.scheduling.closed.networked_rounds import networked_rounds
from tardigrad.scheduling.closed.one_shard import OneShard
from tardigrad.scheduling.closed.partial import in_rounds, partial, quota
from tardigrad.scheduling.closed.round_ends import round_ends
from tardigrad.scheduling.closed.rounds import worth_rounds
from tardigrad.scheduling.closed.soft_sync import soft_sync
from tardigrad.scheduling.closed.stale_synchronous import stale_synchronous
from tardigrad.scheduling.closed.synchronous import synchronous
from tardigrad.scheduling.closed.waiting_groups import waiting_groups
from tardigrad.scheduling.schedule import Schedule


def closed_schedule(
    policy: Policy, cluster: Cluster, updates: int, seed: int, shards: int, about: dict[str, Any]
) -> Schedule | None:
    """The schedule in closed form, or None where there is none."""
    if not has_closed_form(policy, cluster, shards):
        return None
    if isinstance(cluster, TimedCluster) and cluster.network is not None:
        over = _over_network(policy, cluster, updates, seed, shards)
        return None if over is None else replace(over, about=about)
    made = _at_one_shard(policy, cluster, updates, seed)
    clockless = not isinstance(cluster, TimedCluster)
    return None if made is None else made.schedule(shards, about, clockless)


def has_closed_form(policy: Policy, cluster: Cluster, shards: int) -> bool:
    """Whether `closed_schedule` has one, as far as can be told beforehand. There is none where
    workers tie in steps that take no time, or over a network in any; where `BoundedDelay` or
    `Ringmaster` drops something over a network; where so short a `Deadline` or `Quorum` leaves
    rounds of a few; and where these have shards far apart (see `networked_rounds`)."""
    # A policy of one's own may be derived from one of these, and do something else.
    kind, workers = type(policy), cluster.workers
    if policy.interrupts:
        return False
    never_waits = kind in (Async, BoundedDelay, Ringmaster) or (
        isinstance(policy, SoftSync) and kind is SoftSync and not policy.wait
    )
    if not isinstance(cluster, TimedCluster):
        return isinstance(cluster, Dispatcher) and cluster.uniform and never_waits
    if not cluster.undisturbed:
        waits = kind is Backup or (kind is SoftSync and not never_waits)
        rounds = _in_rounds_over_network(policy, cluster, shards)
        return steady(cluster) and (waits or rounds or goes_over_network(policy))
    if isinstance(policy, Backup) and kind is Backup:
        return worth_rounds(workers, workers - policy.backups)
    if isinstance(policy, Partial) and kind is Partial:
        waited = quota(policy, workers)
        return in_rounds(policy, workers, shards) and worth_rounds(workers, waited)
    if kind is Deadline:
        return worth_rounds(workers, workers)
    return never_waits or kind in (Sync, SoftSync, StaleSynchronous)


def in_one_piece(policy: Policy, cluster: Cluster, shards: int) -> bool:
    """Whether a closed form makes whole arrays, and does not collect numbers in lists."""
    over_network = isinstance(cluster, TimedCluster) and cluster.network is not None
    collects = (isinstance(policy, SoftSync) and policy.wait) or (
        isinstance(policy, Backup | Deadline | Partial | Quorum) and over_network
    )
    return has_closed_form(policy, cluster, shards) and not collects


def least_gradients(policy: Policy, cluster: Cluster, updates: int) -> int:
    """How many gradients a schedule in closed form has, at least."""
    workers, size = cluster.workers, 1
    match policy:
        case Sync():
            size = workers
        case Backup():
            size = workers - policy.backups
        case Partial():
            size = quota(policy, workers)
        case SoftSync():
            size = policy.group_size(workers)
    return max(workers, size * updates)


def _in_rounds_over_network(policy: Policy, cluster: Cluster, shards: int) -> bool:
    """Whether there are rounds for all workers at a time, and so many workers worth it."""
    workers = waited = cluster.workers
    if isinstance(policy, Partial):
        known = type(policy) is Partial and in_rounds(policy, workers, shards)
        waited = quota(policy, workers)
    else:
        known = round_ends(policy, workers, shards) is not None
    if isinstance(policy, Backup):
        waited = workers - policy.backups
    return known and worth_rounds(workers, waited)


def _over_network(
    policy: Policy, cluster: TimedCluster, updates: int, seed: int, shards: int
) -> Schedule | None:
    if isinstance(policy, Partial):
        return networked_partial(policy, cluster, updates, seed, shards)
    if _in_rounds_over_network(policy, cluster, shards):
        made = networked_rounds(policy, cluster, updates, seed, shards)
        if made is not None or not isinstance(policy, Backup):
            return made
    make = networked_groups if isinstance(policy, Backup | SoftSync) else networked
    return make(policy, cluster, updates, seed, shards)


def _at_one_shard(policy: Policy, cluster: Cluster, updates: int, seed: int) -> OneShard | None:
    match policy:
        case Async():
            return asynchronous(policy, cluster, updates, seed)
        case BoundedDelay() | Ringmaster():
            return bounded_delay(policy, cluster, updates, seed)
        case SoftSync() if not policy.wait:
            return soft_sync(policy, cluster, updates, seed)
    assert isinstance(cluster, TimedCluster)
    match policy:
        case Sync():
            return synchronous(policy, cluster, updates, seed)
        case Backup():
            return backup(policy, cluster, updates, seed)
        case Deadline():
            return deadline(policy, cluster, updates, seed)
        case Partial():
            return partial(policy, cluster, updates, seed)
        case SoftSync():
            return waiting_groups(policy, cluster, updates, seed)
        case StaleSynchronous():
            return stale_synchronous(policy, cluster, updates, seed)
    return None
