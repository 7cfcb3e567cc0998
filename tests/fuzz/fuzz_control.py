"""Random clusters, networks, policies and links that fit each other."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import tardigrad as tg
from tardigrad.clusters import Cluster
from tardigrad.links import Link
from tardigrad.links.budget import Direction
from tardigrad.links.link import OnDrop
from tardigrad.policies import Policy
from tardigrad.policies.quorum import WEIGHTS
from tests.fuzz.fuzz_draws import Draws

TRACE = str(Path(__file__).with_name("step_times.csv"))
"""Measured step times of three workers; means are near one second everywhere, as below."""


def draw_cluster(seed: int, workers: int, shards: int, clock: bool) -> Cluster:
    draw = Draws(seed, "cluster")
    if not clock:
        weights = tuple(draw.uniform(0.1, 2.0) for _ in range(workers))
        return tg.Dispatcher(
            workers,
            weights=weights if draw.chance(0.5) else None,
            drawn_factor=draw.choice([1.0, 1.0, 0.5, 1.1]),
        )
    around: dict[str, Any] = {}
    if draw.chance(0.45):
        around["network"] = draw_network(seed, shards)
    if draw.chance(0.35):
        around["absences"] = draw_absences(seed, workers)
    kind = draw.integer(0, 7)
    if kind <= 1:
        return tg.Gamma(workers, heterogeneous=kind == 1, mean_s=1.0, **around)
    if kind == 2:
        each = tuple(draw.choice([0.5, 1.0, 1.0, 2.5]) for _ in range(workers))
        return tg.Constant(workers, step_s=each if draw.chance(0.5) else 1.0, **around)
    if kind == 3:
        return tg.Exponential(workers, mean_s=1.0, **around)
    if kind == 4:
        return tg.LogNormal(workers, variation=draw.choice([0.1, 0.8]), **around)
    if kind == 5:
        return tg.Pareto(workers, least_s=0.5, exponent=draw.uniform(1.2, 3.0), **around)
    if kind == 6:
        return tg.Stragglers(
            workers, mean_s=1.0, straggle=0.2, burst=draw.choice([0.0, 0.577]), **around
        )
    return tg.Trace(TRACE, workers=workers, **around)


def draw_network(seed: int, shards: int) -> tg.Network:
    draw = Draws(seed, "network")
    parts: dict[str, Any] = {"latency_s": draw.choice([0.0, 0.05, 0.3, 1.5])}
    if draw.chance(0.5):
        parts["jitter"] = draw.uniform(0.1, 3.0)
    if draw.chance(0.4):
        parts |= {"bandwidth_bytes_s": 1000.0, "model_bytes": draw.uniform(50.0, 2000.0)}
    if draw.chance(0.3):
        parts |= {"rare_probability": 0.1, "rare_delay_s": draw.uniform(1.0, 6.0)}
    if draw.chance(0.3):
        parts["slow_shards"] = (tg.SlowShard(draw.integer(0, shards - 1), draw.uniform(0.5, 8.0)),)
    if draw.chance(0.3):
        parts["outages"] = tuple(_outage(draw, shards) for _ in range(draw.integer(1, 2)))
    return tg.Network(**parts)


def _outage(draw: Draws, shards: int) -> tg.Outage:
    stops = draw.choice([0.0, draw.uniform(0.0, 25.0)])
    returns = None if draw.chance(0.1) else stops + draw.uniform(0.1, 8.0)
    return tg.Outage(draw.integer(0, shards - 1), stops, returns)


def draw_absences(seed: int, workers: int) -> tuple[tg.Absence, ...]:
    """One after another for each worker; one time in twenty everybody goes for good."""
    draw = Draws(seed, "absences")
    everybody = draw.chance(0.05)
    stays = -1 if everybody else draw.integer(0, workers - 1)
    out: list[tg.Absence] = []
    for worker in range(workers):
        if not everybody and not draw.chance(0.5):
            continue
        leaves = draw.choice([0.0, draw.uniform(0.0, 25.0)])
        for _ in range(draw.integer(1, 3)):
            # Often sooner back than a message travels.
            returns = leaves + draw.choice([0.01, 0.2, draw.uniform(0.1, 8.0)])
            for_good = worker != stays and (everybody or draw.chance(0.2))
            out.append(tg.Absence(worker, leaves, None if for_good else returns))
            if for_good:
                break
            leaves = returns + draw.choice([0.05, draw.uniform(0.1, 8.0)])
    return tuple(out)


def draw_policy(seed: int, workers: int, clock: bool) -> Policy:
    draw = Draws(seed, "policy")
    policy = _base(draw, workers, clock)
    if not (isinstance(policy, tg.Partial) or policy.interrupts) and draw.chance(0.15):
        timeout_s = draw.choice([0.0, draw.uniform(0.05, 2.0)]) if clock else 0.0
        policy = tg.PartialPull(policy, pull=draw.uniform(0.2, 1.0), pull_timeout_s=timeout_s)
    while draw.chance(0.15):
        policy = tg.RampUp(policy, updates=draw.integer(1, 30))
    return policy


def stopping(seed: int, policy: Policy, link: Link) -> Policy:
    """Half of those with Malenia interrupt, where the link lets them."""
    if isinstance(policy, tg.RampUp):
        return replace(policy, policy=stopping(seed, policy.policy, link))
    malenia = isinstance(policy, tg.Malenia) and isinstance(link, tg.Full)
    if not malenia or not Draws(seed, "stop").chance(0.5):
        return policy
    assert isinstance(policy, tg.Malenia)
    return replace(policy, stop=True)


def paced(seed: int, policy: Policy, batches: int) -> Policy:
    """Where rows have several steps, often as many as a worker's speed says."""
    draw = Draws(seed, "pace")
    return tg.DyLU(policy, draw.choice([1, 4])) if batches > 1 and draw.chance(0.5) else policy


def _base(draw: Draws, workers: int, clock: bool) -> Policy:
    kind = draw.integer(0, 10 if clock else 9)
    if kind == 0:
        return tg.Async(wait=draw.chance(0.6))
    if kind == 1:
        return tg.Sync()
    if kind == 2:
        return tg.Backup(draw.integer(0, workers - 1))
    if kind == 3:
        if draw.chance(0.5):
            return tg.SoftSync(draw.integer(1, workers), wait=draw.chance(0.5))
        wait = draw.chance(0.5)
        return tg.SoftSync(size=draw.integer(1, workers if wait else 2 * workers), wait=wait)
    if kind == 4:
        return tg.StaleSynchronous(draw.choice([0, 1, 2, 5, None]))
    if kind == 5:
        return tg.BoundedDelay(draw.integer(0, 5))
    if kind == 7:
        return tg.Ringmaster(draw.integer(1, 6), stop=draw.chance(0.5))
    if kind == 8:
        batch = draw.integer(1, 2 * workers)
        return tg.Malenia(batch) if draw.chance(0.5) else tg.Rennala(batch, stop=draw.chance(0.5))
    if kind == 9:
        grace_s = draw.uniform(0.05, 2.0) if clock and draw.chance(0.6) else 0.0
        measured = draw.choice([0.0, 2.0, 5.0]) if clock and draw.chance(0.3) else None
        late: Literal["drop", "next"] = draw.choice(["drop", "next"])
        weights = draw.choice(list(WEIGHTS))
        grace_s = 0.0 if measured is not None else grace_s
        return tg.Quorum(draw.integer(1, workers), grace_s, late, weights, measured)
    if kind == 6:
        timeouts = {
            name: draw.uniform(0.05, 2.0)
            for name in ("push_timeout_s", "pull_timeout_s")
            if clock and draw.chance(0.4)
        }
        return tg.Partial(
            push=draw.choice([None, draw.integer(1, workers)]),
            pull=draw.choice([1.0, draw.uniform(0.2, 1.0)]),
            catch_up=draw.chance(0.7),
            **timeouts,
        )
    return tg.Deadline(draw.choice([0.0, draw.uniform(0.1, 3.0)]))


def draw_link(seed: int, policy: Policy) -> Link:
    draw = Draws(seed, "link")
    if policy.interrupts or draw.chance(0.7):
        return tg.Full()
    kind = draw.integer(0, 2)
    if kind == 0:
        push = draw.integer(1, 3) if policy.asynchronous else 1
        return tg.Every(push=push, pull=draw.integer(1, 4))
    ways: list[OnDrop] = ["reapply", "average"]
    on_drop = draw.choice(ways) if policy.asynchronous else "reapply"
    if kind == 1:
        c_push, c_pull = (draw.choice([0.0, draw.log_uniform(0.01, 3.0)]) for _ in range(2))
        return tg.BandwidthAware(c_push, c_pull, on_drop)
    directions: list[Direction] = ["pull", "push", "both"]
    direction = draw.choice(directions)
    return tg.Budget(draw.uniform(20.0, 400.0), direction, on_drop)
