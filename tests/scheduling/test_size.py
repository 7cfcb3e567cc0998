"""Numbers that no machine can hold are refused at once, before anything is drawn or allocated."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Cluster
from tardigrad.policies import Policy
from tardigrad.scheduling import size
from tardigrad.tasks import quadratic

MANY = 10**9
CLUSTERS = (
    tg.Gamma(workers=MANY),
    tg.Gamma(workers=MANY, heterogeneous=True),
    tg.Constant(workers=MANY),
    tg.Exponential(workers=MANY),
    tg.LogNormal(workers=MANY),
    tg.Pareto(workers=MANY),
    tg.Stragglers(workers=MANY),
    tg.Dispatcher(workers=MANY),
    tg.Dispatcher(workers=MANY, drawn_factor=0.5),
)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "physical_bytes", lambda: 64 << 30)


@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync(), tg.RampUp(tg.Async(), 10)], ids=str)
@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda c: type(c).__name__)
def test_a_billion_workers(cluster: Cluster, policy: Policy) -> None:
    with pytest.raises(ValueError, match=r"workers = 1,000,000,000.* GB of memory, and this"):
        tg.schedule(policy, cluster, updates=10)


FOUR = tg.Gamma(workers=4)
BILLION = tg.Gamma(workers=MANY)
TASK, RULE = quadratic(5), tg.rules.fasgd(0.1)
REFUSED = {
    "updates": lambda: tg.schedule(tg.Async(), FOUR, updates=10**12),
    "updates, events": lambda: tg.schedule(tg.Backup(1), FOUR, updates=10**12),
    "shards": lambda: tg.schedule(tg.Async(), FOUR, updates=100, shards=MANY),
    "rounds of many": lambda: tg.schedule(tg.Sync(), tg.Gamma(workers=10**6), updates=10**5),
    "order": lambda: tg.Schedule.from_order([0, 1], MANY),
    "order, shards": lambda: tg.Schedule.from_order([0, 1], 2, shards=MANY),
    "simulate": lambda: tg.simulate(TASK, RULE, cluster=BILLION, updates=10),
    "steps of a row": lambda: tg.schedule(tg.Async(), FOUR, updates=10, batches=MANY),
    "steps without end": lambda: tg.schedule(tg.Sync(), FOUR, updates=10, batches=10**20),
    "in step": lambda: tg.simulate(
        TASK, RULE, cluster=BILLION, updates=10, link=tg.BandwidthAware()
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_numbers_without_measure(name: str) -> None:
    with pytest.raises(ValueError, match=r"make a schedule that needs at least .* use fewer"):
        REFUSED[name]()


@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync(), tg.Backup(2)], ids=str)
@pytest.mark.parametrize("shards", [1, 5])
def test_no_more_is_predicted_than_the_arrays_take(
    policy: Policy, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nothing is refused which would fit."""
    parts: dict[str, Any] = {"cluster": tg.Gamma(workers=8), "updates": 300, "shards": shards}
    made = tg.schedule(policy, **parts)
    arrays = [getattr(made, f.name) for f in fields(made)]
    took = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    closed = policy != tg.Backup(2)
    least = took + 8 * size.WORKER if closed else size.EVENTS * took + 8 * size.LOOP_WORKER
    monkeypatch.setattr(size, "physical_bytes", lambda: least)
    assert tg.schedule(policy, **parts) == made
    monkeypatch.setattr(size, "physical_bytes", lambda: least // 8)
    with pytest.raises(ValueError, match="use fewer"):
        tg.schedule(policy, **parts)
