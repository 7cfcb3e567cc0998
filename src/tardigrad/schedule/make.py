"""Making schedules: from a time model, or from a given order of arrivals."""

import json
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from tardigrad.checks import count, require
from tardigrad.clusters import Clockless, Cluster, FixedOrder, TimedCluster
from tardigrad.policies import Async, Policy
from tardigrad.schedule.bulk import bulk_schedule
from tardigrad.schedule.loop import Loop
from tardigrad.schedule.recorder import Recorder
from tardigrad.schedule.schedule import Schedule
from tardigrad.schedule.sources import Dispatched, Source, Timed


def schedule(
    policy: Policy | None = None,
    cluster: Cluster | None = None,
    updates: int = 1000,
    seed: int = 0,
    shards: int = 1,
    bulk: bool = True,
) -> Schedule:
    """Let the policy meet the time model until every shard has made `updates` updates.

    All workers start at time 0 from version 0. `bulk=False` takes the event loop even where a
    closed form gives the same schedule at once.
    """
    policy = policy or Async()
    if cluster is None:
        raise ValueError("cluster is missing: give one, such as cluster=tg.Gamma(workers=32)")
    count("updates", updates)
    count("shards", shards)
    count("seed", seed, least=0)
    _check(policy, cluster.workers, shards, clockless=isinstance(cluster, Clockless))
    about = {"policy": _about(policy), "cluster": _about(cluster), "seed": seed}
    made = bulk_schedule(policy, cluster, updates, seed, shards, about) if bulk else None
    if made is not None:
        return made
    recorder = Recorder(cluster.workers, shards, clockless=isinstance(cluster, Clockless))
    recorder.about = about
    loop = Loop(policy, _source(cluster, seed), recorder, updates)
    if isinstance(cluster, TimedCluster):
        if cluster.network is not None:
            loop.messages = cluster.network.realise(seed, cluster.workers, shards)
        loop.expect(cluster.absences)
    loop.run()
    return recorder.schedule()


def schedule_from_order(
    order: Sequence[int], num_workers: int, policy: Policy | None = None, shards: int = 1
) -> Schedule:
    """The schedule in which gradients arrive in exactly this order of workers."""
    count("num_workers", num_workers)
    count("shards", shards)
    require(len(order) > 0, "order is empty: give the workers whose gradients arrive, in order")
    for i, worker in enumerate(order):
        require(
            isinstance(worker, int | np.integer),
            f"order[{i}] must be the number of a worker, got {worker!r}",
        )
    policy = policy or Async()
    _check(policy, num_workers, shards, clockless=True)
    recorder = Recorder(num_workers, shards, clockless=True)
    recorder.about = {"policy": _about(policy), "cluster": {"name": "order"}}
    arrivals = np.asarray(order, dtype=np.int64)
    source = Dispatched(FixedOrder(arrivals, num_workers), events=len(order))
    Loop(policy, source, recorder, updates=None).run()
    return recorder.schedule()


def _source(cluster: Cluster, seed: int) -> Source:
    if isinstance(cluster, TimedCluster):
        return Timed(cluster.realise(seed), cluster.workers)
    assert isinstance(cluster, Clockless)
    return Dispatched(cluster.dispatch(seed))


def _check(policy: Policy, workers: int, shards: int, clockless: bool) -> None:
    policy.check(workers, shards)
    require(
        not (clockless and policy.needs_clock),
        f"{type(policy).__name__} sets timers, and a dispatcher or a fixed order has no clock: "
        "use a cluster with times, such as Gamma",
    )


def _about(part: Any) -> dict[str, Any]:
    described = {"name": type(part).__name__}
    if is_dataclass(part) and not isinstance(part, type):
        described |= {k: v for k, v in asdict(part).items() if not callable(v)}
    plain: dict[str, Any] = json.loads(json.dumps(described))  # as a saved one will say it
    return plain
