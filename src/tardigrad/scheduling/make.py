"""Making schedules: from a time model, or from a given order of arrivals."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import numpy as np

from tardigrad.clusters import (
    Clockless,
    Cluster,
    Dispatcher,
    FixedOrder,
    SeveralSteps,
    TimedCluster,
)
from tardigrad.core.arrays import Ints
from tardigrad.core.checks import count, require
from tardigrad.core.collector import paused_collector
from tardigrad.links import Codec, Full, Gate, Identity, Link, encoded_bytes
from tardigrad.policies import Async, Policy
from tardigrad.scheduling.closed import closed_schedule, in_one_piece, least_gradients
from tardigrad.scheduling.given import check_given
from tardigrad.scheduling.loop import ControlLoop
from tardigrad.scheduling.paced import PacedLoop, PacedSource
from tardigrad.scheduling.recorder import Recorder
from tardigrad.scheduling.schedule import Schedule
from tardigrad.scheduling.size import check_size
from tardigrad.scheduling.sources import Dispatched, EventSource, TimedSource, expect
from tardigrad.scheduling.wire import Wire


def schedule(
    policy: Policy | None = None,
    cluster: Cluster | None = None,
    updates: int = 1000,
    seed: int = 0,
    shards: int = 1,
    link: Link | None = None,
    bulk: bool = True,
    batches: int = 1,
) -> Schedule:
    """Simulate the policy on the cluster until every shard has made `updates` updates.

    All workers start at time 0 from version 0. `bulk=False` takes the event loop even where a
    closed form gives the same schedule at once. A row takes as many step times as it has `batches`.
    """
    check_given(policy=policy, cluster=cluster, link=link)
    policy, link = policy or Async(), link or Full()
    about = check_control(policy, cluster, updates, seed, shards, link, batches)
    assert cluster is not None
    require(
        not link.reads_deviation,
        f"{type(link).__name__} decides by the gradient's deviation, which a schedule without "
        "tensors does not have: use tg.simulate(task, rule, …, link=…), which makes and executes "
        "it together",
    )
    gate = link.realise(seed, [0] * shards)
    if bulk and gate is None and policy.pace(batches) is None:
        several = _of_several(_encoded(cluster, link, shards), batches)
        made = closed_schedule(policy, several, updates, seed, shards, about)
        if made is not None:
            return made
    recorder = Recorder(cluster.workers, shards, clockless=isinstance(cluster, Clockless))
    recorder.about = about
    with paused_collector():
        control(policy, cluster, updates, seed, recorder, link, gate, batches=batches).run()
        return recorder.schedule()


def control(
    policy: Policy,
    cluster: Cluster,
    updates: int,
    seed: int,
    recorder: Recorder,
    link: Link,
    gate: Gate | None,
    deviation: Callable[[int], float] | None = None,
    batches: int = 1,
) -> ControlLoop:
    """The event loop of these parts, ready to run into the recorder."""
    cluster = _encoded(cluster, link, recorder.shards)
    timed = cluster if isinstance(cluster, TimedCluster) else None
    messages = None
    if timed is not None and timed.network is not None:
        messages = timed.network.realise(seed, cluster.workers, recorder.shards)
    wire = None if gate is None else Wire(link, gate, recorder, deviation)
    pace = policy.pace(batches)
    if pace is not None:
        assert timed is not None
        paced = PacedSource(timed.realise(seed), recorder)
        loop: ControlLoop = PacedLoop(pace, policy, paced, recorder, updates, messages, wire)
    else:
        source = _source(_of_several(cluster, batches), seed)
        loop = ControlLoop(policy, source, recorder, updates, messages, wire)
    expect(loop.source, timed.absences if timed is not None else ())
    return loop


def check_control(
    policy: Policy,
    cluster: Cluster | None,
    updates: int,
    seed: int,
    shards: int,
    link: Link,
    batches: int = 1,
) -> dict[str, Any]:
    """Refuse parts that cannot work together; else what made the schedule, for people."""
    if cluster is None:
        raise ValueError("cluster is missing: give one, such as cluster=tg.Gamma(workers=32)")
    count("updates", updates)
    count("shards", shards)
    count("seed", seed, least=0)
    count("batches", batches)
    _check(policy, cluster.workers, shards, clockless=isinstance(cluster, Clockless))
    closed = isinstance(link, Full) and in_one_piece(policy, cluster, shards)
    gradients = cluster.workers + updates
    if closed:
        gradients = least_gradients(policy, cluster, updates)
    drawn = batches if isinstance(cluster, TimedCluster) else 1
    check_size(cluster.workers, updates, shards, gradients, closed, drawn)
    check_link(policy, link)
    require(
        policy.pace(batches) is None or isinstance(cluster, TimedCluster),
        f"{type(policy).__name__} goes by how fast workers are, and {type(cluster).__name__} has "
        "no clock: use a cluster with times, such as Gamma",
    )
    require(
        not (policy.needs_all and isinstance(cluster, Dispatcher) and cluster.drawn_factor > 1),
        f"{type(policy).__name__} needs a gradient of every worker, and drawn_factor above 1 lets "
        "those who came come ever more often, so that another may never come: use drawn_factor ≤ 1",
    )
    described = {"policy": policy, "cluster": cluster, "link": link}
    about = {name: about_part(part) for name, part in described.items()} | {"seed": seed}
    return about | about_work(batches)


def _encoded(cluster: Cluster, link: Link, shards: int) -> Cluster:
    """The cluster as it is where a codec makes pushes smaller than replies."""
    network = cluster.network if isinstance(cluster, TimedCluster) else None
    if network is None or network.model_bytes is None or isinstance(link.codec, Identity):
        return cluster
    assert isinstance(cluster, TimedCluster)
    each = network.number_bytes
    length = max(1, round(network.model_bytes / shards / each))
    push_bytes = shards * encoded_bytes(link.codec, length, each)
    return replace(cluster, network=network.pushing(push_bytes))


def _of_several(cluster: Cluster, batches: int) -> Cluster:
    """The cluster as it is where what is pushed takes so many steps."""
    return SeveralSteps.of(cluster, batches) if isinstance(cluster, TimedCluster) else cluster


def check_link(policy: Policy, link: Link) -> None:
    """Refuse a link whose codec is none, one that averages pushes though a policy waits for them,
    and one that holds back what a policy interrupts by."""
    require(
        isinstance(link.codec, Codec),
        f"codec must be a tg.Codec such as tg.TopK(0.01), got {link.codec!r}",
    )
    require(
        policy.asynchronous or not link.averages,
        f"{type(link).__name__} averages gradients that it does not send into a later push, but "
        f"{type(policy).__name__} waits for the gradients of several pushes before it updates: use "
        f"an asynchronous policy, or {link.unaveraged}",
    )
    require(
        not policy.interrupts or isinstance(link, Full),
        f"{type(policy).__name__} interrupts workers by what they were sent, and "
        f"{type(link).__name__} may hold that back: use tg.Full() as the link, or stop=False",
    )


def schedule_from_order(
    order: Sequence[int] | Ints, num_workers: int, policy: Policy | None = None, shards: int = 1
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
    check_size(num_workers, 0, shards, num_workers + len(order), closed=False)
    recorder = Recorder(num_workers, shards, clockless=True)
    recorder.about = {"policy": about_part(policy), "cluster": {"name": "order"}}
    arrivals = np.asarray(order, dtype=np.int64)
    source = Dispatched(FixedOrder(arrivals, num_workers), events=len(order))
    with paused_collector():
        ControlLoop(policy, source, recorder, updates=None).run()
        return recorder.schedule()


def _source(cluster: Cluster, seed: int) -> EventSource:
    if isinstance(cluster, TimedCluster):
        return TimedSource(cluster.realise(seed), cluster.workers)
    assert isinstance(cluster, Clockless)
    return Dispatched(cluster.dispatch(seed))


def _check(policy: Policy, workers: int, shards: int, clockless: bool) -> None:
    policy.check(workers, shards)
    require(
        not (clockless and policy.needs_clock),
        f"{type(policy).__name__} sets timers, and a dispatcher or a fixed order has no clock: "
        "use a cluster with times, such as Gamma",
    )


def about_work(batches: int) -> dict[str, Any]:
    """That rows are of so many batches, where they are of more than one."""
    return {} if batches == 1 else {"batches": batches}


def about_part(part: Any) -> dict[str, Any]:
    """What a part of a run says of itself, as plain data."""
    described: dict[str, Any] = {"name": type(part).__name__}
    if is_dataclass(part) and not isinstance(part, type):
        described |= {k: v for k, v in asdict(part).items() if not callable(v)}
    if isinstance(part, Link):
        described.pop("codec", None)
        if not isinstance(part.codec, Identity):
            described["codec"] = about_part(part.codec)
    plain: dict[str, Any] = json.loads(json.dumps(described))  # as a saved one will say it
    return plain
