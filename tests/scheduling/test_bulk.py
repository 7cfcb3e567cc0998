"""Closed forms against the event loop, to the last array."""

from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Cluster, Constant
from tardigrad.scheduling import validate
from tardigrad.scheduling.bulk import bulk_schedule

CLUSTERS: dict[str, Cluster] = {
    "gamma": tg.Gamma(workers=5),
    "heterogeneous": tg.Gamma(workers=7, heterogeneous=True),
    "very uneven": tg.Gamma(workers=4, heterogeneous=True, machine_variation=1.5),
    "one worker": tg.Gamma(workers=1),
    "dispatcher": tg.Dispatcher(workers=6),
    # Arrivals at the same instant: the event loop serves first who started first.
    "equal": Constant(workers=4),
    "slow last": Constant(workers=3, step_s=(1.0, 2.0, 3.0)),
    "slow first": Constant(workers=4, step_s=(6.0, 3.0, 2.0, 1.0)),
    "mixed": Constant(workers=5, step_s=(2.0, 1.0, 1.0, 2.0, 4.0)),
}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()], ids=["async", "sync"])
@pytest.mark.parametrize("name", CLUSTERS)
def test_bulk_is_the_event_loop(name: str, policy: Any, shards: int) -> None:
    for seed in range(4):
        for updates in (1, 2, 50, 333):
            options: dict[str, Any] = {"updates": updates, "seed": seed, "shards": shards}
            made = tg.schedule(policy, CLUSTERS[name], **options)
            looped = tg.schedule(policy, CLUSTERS[name], bulk=False, **options)
            assert made == looped
            assert made.updates == updates
            validate(made)


def test_bulk_is_what_was_compared() -> None:
    """Otherwise the test above compares the loop with itself."""
    for cluster in (tg.Gamma(workers=5), Constant(workers=4), Constant(2, (2.0, 1.0))):
        for policy in (tg.Async(), tg.Sync()):
            assert bulk_schedule(policy, cluster, 100, 0, 2, {}) is not None
    assert bulk_schedule(tg.Async(), tg.Dispatcher(workers=3), 100, 0, 1, {}) is not None
    for policy in (tg.Async(wait=False),):
        assert bulk_schedule(policy, tg.Gamma(workers=5), 100, 0, 1, {}) is None


def test_a_schedule_is_a_beginning_of_the_longer_one() -> None:
    for policy in (tg.Async(), tg.Async(wait=False), tg.Sync()):
        short, long = (tg.schedule(policy, tg.Gamma(workers=3), n, seed=2) for n in (40, 90))
        assert np.array_equal(short.group_rows, long.group_rows[: len(short.group_rows)])
        assert np.array_equal(short.group_time_s, long.group_time_s[:40])
        assert np.array_equal(short.read, long.read[: short.rows])
        assert np.array_equal(short.start_s, long.start_s[: short.rows])
