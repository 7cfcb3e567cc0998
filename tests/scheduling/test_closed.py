"""Closed forms against the event loop, to the last array."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Cluster, Constant, StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.scheduling import validate
from tardigrad.scheduling.closed import (
    closed_schedule,
    has_closed_form,
    in_one_piece,
    least_gradients,
    rounds,
)
from tardigrad.scheduling.closed.waiting_groups import waiting_groups

Draws = np.random.Generator

CLUSTERS: dict[str, Callable[[int, Draws], Cluster]] = {
    "gamma": lambda n, draw: tg.Gamma(workers=n),
    "uneven": lambda n, draw: tg.Gamma(
        workers=n, heterogeneous=True, machine_variation=draw.uniform(0.1, 1.5)
    ),
    "exponential": lambda n, draw: tg.Exponential(workers=n),
    "stragglers": lambda n, draw: tg.Stragglers(workers=n, straggle=0.2),
    # Arrivals at the same instant: the event loop serves first who started first.
    "equal": lambda n, draw: Constant(workers=n),
    "multiples": lambda n, draw: Constant(n, tuple(draw.integers(1, 5, n).astype(float).tolist())),
    "tenths": lambda n, draw: Constant(n, tuple(draw.choice([0.1, 0.2, 0.3, 0.7], n).tolist())),
    "whole": lambda n, draw: _Whole(workers=n),
    "dispatcher": lambda n, draw: tg.Dispatcher(workers=n),
}

POLICIES: dict[str, Callable[[int, Draws], tg.Policy]] = {
    "async": lambda n, draw: tg.Async(),
    "async at once": lambda n, draw: tg.Async(wait=False),
    "sync": lambda n, draw: tg.Sync(),
    "backup": lambda n, draw: tg.Backup(int(draw.integers(0, n))),
    "soft sync": lambda n, draw: tg.SoftSync(int(draw.integers(1, n + 1))),
    "soft sync at once": lambda n, draw: tg.SoftSync(int(draw.integers(1, n + 1)), wait=False),
    "soft sync of a size": lambda n, draw: tg.SoftSync(size=int(draw.integers(1, n + 1))),
    "soft sync of a size at once": lambda n, draw: tg.SoftSync(
        size=int(draw.integers(1, 2 * n + 1)), wait=False
    ),
    "stale": lambda n, draw: tg.StaleSynchronous(int(draw.integers(0, 6))),
    "stale, unbounded": lambda n, draw: tg.StaleSynchronous(None),
    "bounded": lambda n, draw: tg.BoundedDelay(int(draw.integers(0, 2 * n))),
    "ringmaster": lambda n, draw: tg.Ringmaster(int(draw.integers(1, 2 * n))),
    "deadline": lambda n, draw: tg.Deadline(draw.choice([0.0, 0.5, 1.0, 2.0, 3.0, 110.0, 128.0])),
    "partial": lambda n, draw: tg.Partial(
        push=int(draw.integers(1, n + 1)), pull=draw.choice([0.5, 0.9, 1.0])
    ),
    "partial of all": lambda n, draw: tg.Partial(catch_up=bool(draw.integers(2))),
}


class _Whole(tg.Gamma):
    """Whole seconds, from 1 to 3: many ties, and no pattern in them."""

    least_s = 1

    def realise(self, seed: int) -> StepTimes:
        return _WholeTimes(super().realise(seed), self.least_s)


class _SomeAtOnce(_Whole):
    least_s = 0


class _WholeTimes(StepTimes):
    def __init__(self, times: StepTimes, least_s: int) -> None:
        self.times = times
        self.least_s = least_s

    def step_s(self, workers: Any, steps: Any) -> Floats:
        return np.round(1e3 * self.times.step_s(workers, steps)) % 3 + self.least_s


@pytest.fixture(autouse=True)
def also_small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of a few workers are quicker in the event loop, and as good to compare."""
    monkeypatch.setattr(rounds, "LEAST", 1)
    monkeypatch.setattr(rounds, "SHARE", 1000)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_closed_form_is_the_event_loop(policy: str, cluster: str) -> None:
    draw = np.random.default_rng([len(policy), len(cluster)])
    for _ in range(12):
        workers = int(draw.integers(1, 14))
        chosen, machines = POLICIES[policy](workers, draw), CLUSTERS[cluster](workers, draw)
        updates, seed, shards = (int(draw.integers(*span)) for span in ((1, 90), (0, 99), (1, 4)))
        about = f"{chosen} {machines} {updates=} {seed=} {shards=}"
        if not has_closed_form(chosen, machines, shards):
            partial = isinstance(chosen, tg.Partial) and chosen.pull < 1
            assert partial or isinstance(machines, tg.Dispatcher), about
            continue
        made = closed_schedule(chosen, machines, updates, seed, shards, {})
        assert made is not None, about
        looped = tg.schedule(chosen, machines, updates, seed, shards, bulk=False)
        looped.about.clear()
        assert made == looped, about
        assert made.updates == updates
        assert made.rows >= least_gradients(chosen, machines, updates)
        validate(made)


@pytest.mark.parametrize(
    "policy", ["backup", "soft sync", "stale", "bounded", "partial", "deadline"]
)
def test_many_workers_and_steps(policy: str) -> None:
    """More steps than are drawn at a time, by some workers far more than by others."""
    draw = np.random.default_rng(3)
    for machines in (
        tg.Gamma(workers=300, heterogeneous=True, machine_variation=0.8),
        Constant(workers=20, step_s=tuple(draw.integers(1, 40, 20).astype(float).tolist())),
    ):
        chosen = POLICIES[policy](machines.workers, draw)
        updates = 4000 * 4000 // least_gradients(chosen, machines, 4000)
        made = closed_schedule(chosen, machines, updates, 5, 1, {})
        looped = tg.schedule(chosen, machines, updates, 5, bulk=False)
        looped.about.clear()
        assert made == looped, chosen


@pytest.mark.parametrize("many", [1, 1 << 30], ids=["many at a time", "one by one"])
@pytest.mark.parametrize("kind", [tg.Gamma, tg.Exponential, tg.Pareto, _Whole, _SomeAtOnce])
def test_groups_that_wait_either_way(
    kind: type[TimedCluster], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole times tie, and steps may take none; more of them than are drawn at a time."""
    monkeypatch.setattr(sys.modules[waiting_groups.__module__], "MANY", many)
    draw = np.random.default_rng(4)
    for _ in range(25):
        workers = int(draw.integers(1, 40))
        chosen, updates = tg.SoftSync(int(draw.integers(1, workers + 1))), int(draw.integers(1, 90))
        machines = kind(workers=workers)  # type: ignore[call-arg]
        made = closed_schedule(chosen, machines, updates, workers, 1, {})
        looped = tg.schedule(chosen, machines, updates, workers, bulk=False)
        looped.about.clear()
        assert made == looped, f"{chosen} {machines} {updates=}"


NETWORKS: dict[str, tg.Network] = {
    "latency": tg.Network(latency_s=9.0),
    "jitter": tg.Network(latency_s=5.0, jitter=2.0, rare_probability=0.1, rare_delay_s=90.0),
    "slow shard": tg.Network(
        latency_s=1.0,
        bandwidth_bytes_s=10.0,
        model_bytes=99.0,
        slow_shards=(tg.SlowShard(0, 3.0),),
    ),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "policy", ["async", "sync", "stale", "stale, unbounded", "bounded", "backup", "soft sync"]
)
def test_over_a_network(policy: str, network: str) -> None:
    draw = np.random.default_rng([len(policy), len(network)])
    made = 0
    for _ in range(14):
        workers, shards = int(draw.integers(1, 11)), int(draw.integers(1, 5))
        kind = draw.choice(["gamma", "uneven", "exponential", "stragglers", "multiples"])
        machines = CLUSTERS[kind](workers, draw)
        assert isinstance(machines, tg.TimedCluster)
        machines = replace(machines, network=NETWORKS[network])
        chosen = POLICIES[policy](workers, draw)
        updates, seed = int(draw.integers(1, 70)), int(draw.integers(99))
        closed = closed_schedule(chosen, machines, updates, seed, shards, {})
        looped = tg.schedule(chosen, machines, updates, seed, shards, bulk=False)
        about = f"{chosen} {machines} {updates=} {seed=} {shards=}"
        if closed is None:
            dropped = (
                isinstance(chosen, tg.BoundedDelay | tg.Ringmaster) and len(looped.drop_row) > 0
            )
            assert dropped or _arrive_together(looped), about
            continue
        looped.about.clear()
        assert closed == looped, about
        validate(closed)
        made += 1
    assert made > 2


def _arrive_together(looped: tg.Schedule) -> bool:
    """Whether arrivals of different gradients at one moment have to be put in order."""
    assert not looped.about["cluster"]["network"]["jitter"]
    return looped.about["cluster"]["name"] == "Constant"


def test_where_there_is_no_closed_form() -> None:
    gamma = tg.Gamma(workers=40)
    away = tg.Gamma(workers=40, absences=(tg.Absence(3, 1.0),))
    outage = tg.Network(latency_s=0.1, outages=(tg.Outage(0, 1.0, 2.0),))
    stopped = tg.Gamma(workers=40, network=outage)
    both = tg.Gamma(workers=40, network=tg.Network(latency_s=0.1), absences=away.absences)
    everyone = np.random.default_rng(0)
    for policy in (make(40, everyone) for make in POLICIES.values()):
        assert not has_closed_form(policy, away, 1)
        assert not has_closed_form(policy, tg.Dispatcher(40, drawn_factor=0.5), 1)
        assert not has_closed_form(policy, stopped, 1)
        assert not has_closed_form(policy, both, 1)
    over = tg.Gamma(workers=40, network=tg.Network(latency_s=0.1))
    for policy in (tg.Async(wait=False), tg.SoftSync(3, wait=False)):
        assert not has_closed_form(policy, over, 1), policy
    for policy, shards in (
        (tg.Partial(push=30, pull=0.5), 2),
        (tg.Partial(push=30, push_timeout_s=0.1), 1),
        (tg.Partial(push=30, catch_up=False), 1),
        (tg.RampUp(tg.Async(), 5), 1),
        (tg.PartialPull(tg.Async(), 0.5), 1),
    ):
        assert not has_closed_form(policy, gamma, shards), policy
    for policy in (tg.Sync(), tg.StaleSynchronous(2), tg.Backup(3), tg.SoftSync(3)):
        assert not has_closed_form(policy, tg.Dispatcher(40), 1), policy


def test_what_collects_in_lists_is_measured_as_the_loop_is() -> None:
    """It holds several times as much meanwhile, which `check_size` has to know."""
    gamma, network = tg.Gamma(workers=40), tg.Network(latency_s=0.1)
    over = tg.Gamma(workers=40, network=network)
    for policy in (tg.Backup(4), tg.Async(), tg.SoftSync(4, wait=False)):
        assert in_one_piece(policy, gamma, 1), policy
    assert has_closed_form(tg.SoftSync(4), gamma, 1)
    assert not in_one_piece(tg.SoftSync(4), gamma, 1)
    for waits in (tg.SoftSync(4), tg.Backup(4), tg.Deadline(9.0), tg.Quorum(30), tg.Partial()):
        assert has_closed_form(waits, over, 1), waits
        assert not in_one_piece(waits, over, 1), waits


def test_a_policy_of_ones_own_has_none() -> None:
    class Own(tg.StaleSynchronous):
        pass

    assert not has_closed_form(Own(2), tg.Gamma(workers=4), 1)


def test_small_groups_of_many_are_left_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert has_closed_form(tg.Backup(50), tg.Gamma(workers=1000), 1)
    assert not has_closed_form(tg.Backup(998), tg.Gamma(workers=1000), 1)
    assert not has_closed_form(tg.Partial(push=5), tg.Gamma(workers=6), 1)
    forty = tg.Gamma(workers=40)
    assert closed_schedule(tg.Deadline(0.0), forty, 20, 0, 1, {}) is None
    assert closed_schedule(tg.Deadline(128.0), forty, 20, 0, 1, {}) is not None


def test_steps_that_take_no_time() -> None:
    """One that ends as it starts ties with what let it start: sorting by starts is not enough."""
    cluster, draw = _SomeAtOnce(workers=6), np.random.default_rng(0)
    declined = set()
    for name, make in POLICIES.items():
        policy = make(6, draw)
        if closed_schedule(policy, cluster, 60, 1, 1, {}) is None:
            declined.add(name)
        looped = tg.schedule(policy, cluster, 60, seed=1, bulk=False)
        assert tg.schedule(policy, cluster, 60, seed=1) == looped, name
    by_starts = {"async", "async at once", "soft sync at once", "soft sync of a size at once"}
    assert declined == by_starts | {"bounded", "ringmaster", "stale", "stale, unbounded"}


def test_a_schedule_is_a_beginning_of_the_longer_one() -> None:
    for policy in (tg.Async(), tg.Async(wait=False), tg.Sync(), tg.StaleSynchronous(1)):
        short, long = (tg.schedule(policy, tg.Gamma(workers=3), n, seed=2) for n in (40, 90))
        assert np.array_equal(short.group_rows, long.group_rows[: len(short.group_rows)])
        assert np.array_equal(short.group_time_s, long.group_time_s[:40])
        assert np.array_equal(short.read, long.read[: short.rows])
        assert np.array_equal(short.start_s, long.start_s[: short.rows])
