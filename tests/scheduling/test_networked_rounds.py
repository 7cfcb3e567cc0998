"""Rounds over a network, all workers at a time, against the event loop: to the last array."""

from collections.abc import Callable

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.scheduling import loop, validate
from tardigrad.scheduling.closed import has_closed_form, rounds
from tardigrad.scheduling.closed.networked_groups import networked_groups
from tardigrad.scheduling.closed.networked_partial import networked_partial
from tardigrad.scheduling.closed.networked_rounds import networked_rounds

Draws = np.random.Generator

POLICIES: dict[str, Callable[[int, Draws], tg.Policy]] = {
    "backup": lambda n, draw: tg.Backup(int(draw.integers(n))),
    "deadline": lambda n, draw: tg.Deadline(float(draw.choice([2.0, 10.0, 15.0, 30.0]))),
    "quorum": lambda n, draw: tg.Quorum(
        int(draw.integers(1, n + 1)), grace_s=float(draw.choice([0.0, 1.0, 8.0]))
    ),
    "measuring quorum": lambda n, draw: tg.Quorum(
        int(draw.integers(1, n + 1)), grace_deviations=float(draw.choice([0.0, 1.0, 5.0]))
    ),
    "partial": lambda n, draw: tg.Partial(push=int(draw.integers(1, n + 1))),
    "partial of all": lambda n, draw: tg.Partial(catch_up=bool(draw.integers(2))),
}
CLUSTERS: dict[str, Callable[[int, tg.Network], tg.TimedCluster]] = {
    "alike": lambda n, net: tg.Gamma(workers=n, mean_s=10.0, network=net),
    "uneven": lambda n, net: tg.Gamma(workers=n, mean_s=10.0, heterogeneous=True, network=net),
    "exponential": lambda n, net: tg.Exponential(workers=n, mean_s=10.0, network=net),
    "stragglers": lambda n, net: tg.Stragglers(
        workers=n, mean_s=10.0, straggle=0.1, least_extra_s=10.0, network=net
    ),
}


@pytest.fixture(autouse=True)
def also_small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are quicker in the event loop."""
    monkeypatch.setattr(rounds, "LEAST", 0)
    monkeypatch.setattr(rounds, "SHARE", 1000)


def _network(draw: Draws) -> tg.Network:
    """From far less than a step to several, with ties and without, and one shard slower."""
    return tg.Network(
        latency_s=float(draw.choice([0.01, 0.1, 1.0, 5.0, 40.0])),
        jitter=float(draw.choice([0.0, 0.5, 3.0])),
        rare_probability=float(draw.choice([0.0, 0.05])),
        rare_delay_s=float(draw.choice([1.0, 30.0])),
        slow_shards=(tg.SlowShard(0, 3.0),) if draw.random() < 0.3 else (),
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_rounds_over_a_network_are_the_event_loop(policy: str) -> None:
    """Few of these have none: shards a step apart, a worker that waits and was the last, a push
    that comes with the one before it."""
    draw, made, asked = np.random.default_rng(len(policy)), 0, 0
    for _ in range(48):
        workers, shards = int(draw.choice([2, 3, 5, 8, 20, 40])), int(draw.integers(1, 5))
        chosen, cluster = POLICIES[policy](workers, draw), str(draw.choice(list(CLUSTERS)))
        machines = CLUSTERS[cluster](workers, _network(draw))
        updates, seed = int(draw.choice([1, 2, 7, 30])), int(draw.integers(99))
        if isinstance(chosen, tg.Partial):
            closed = networked_partial(chosen, machines, updates, seed, shards)
        else:
            closed = networked_rounds(chosen, machines, updates, seed, shards)
        if closed is None:
            continue
        looped = tg.schedule(chosen, machines, updates, seed, shards, bulk=False)
        looped.about.clear()
        assert closed == looped, f"{chosen} {machines} {updates=} {seed=} {shards=}"
        validate(closed)
        if isinstance(chosen, tg.Backup):
            assert networked_groups(chosen, machines, updates, seed, shards) == looped
        made += 1
        asked += len(looped.reply_extra)
    assert made >= 36
    # Answers of different versions were among them, or none to a gradient.
    assert asked > 0 or policy == "partial of all"


@pytest.mark.parametrize(
    "policy",
    [
        tg.Backup(15),
        tg.Deadline(9.0),
        tg.Quorum(200),
        tg.Quorum(151, grace_deviations=5.0),
        tg.Partial(push=280, pull=0.9),
    ],
)
def test_many_workers_do_not_need_the_loop(
    policy: tg.Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More versions than a quorum remembers, and more messages than are drawn at a time."""
    network = tg.Network(latency_s=0.05, jitter=0.5)
    machines = tg.Gamma(workers=300, mean_s=10.0, heterogeneous=True, network=network)
    looped = tg.schedule(policy, machines, 80, seed=3, shards=2, bulk=False)
    monkeypatch.delattr(loop.ControlLoop, "run")
    assert tg.schedule(policy, machines, 80, seed=3, shards=2) == looped


def test_what_is_left_to_the_loop() -> None:
    """Arrivals at one instant, and what quorums do with late gradients beside dropping them."""
    network = tg.Network(latency_s=0.1)
    together = tg.Constant(workers=20, network=network)
    assert networked_rounds(tg.Backup(2), together, 5, 0, 2) is None
    apart = tg.Gamma(workers=20, network=network)
    assert networked_rounds(tg.Quorum(9), apart, 5, 0, 2) is not None
    assert networked_rounds(tg.Quorum(9, late="next"), apart, 5, 0, 2) is None
    assert networked_rounds(tg.Quorum(9, weights="samples"), apart, 5, 0, 2) is None
    assert networked_partial(tg.Partial(push=9), together, 5, 0, 2) is None
    assert networked_partial(tg.Partial(push=9), apart, 5, 0, 2) is not None
    for policy in (tg.Partial(push=9, pull=0.5), tg.Partial(push=9, push_timeout_s=1.0)):
        assert not has_closed_form(policy, apart, 2)
