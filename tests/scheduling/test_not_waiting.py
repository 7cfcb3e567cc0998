"""`Async(wait=False)` over a network: it goes on at once, with the newest that has come."""

from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Network
from tardigrad.policies import Policy

GAMMA: dict[str, Any] = {"workers": 4, "mean_s": 1.0}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("latency_s", [1e-6, 0.3, 1.0, 7.5])
def test_it_reads_the_newest_answer_that_has_come(latency_s: float, shards: int) -> None:
    """An answer is of the version that the push met, and comes two latencies after the push."""
    cluster = tg.Gamma(**GAMMA, network=Network(latency_s=latency_s))
    made = tg.schedule(tg.Async(wait=False), cluster, updates=200, shards=shards)
    assert made.waiting_s.sum() == 0
    met = np.full(made.rows, -1)
    for shard in range(shards):
        groups = np.flatnonzero(made.group_shard == shard)
        met[made.group_rows[groups]] = np.arange(len(groups))
        for row in range(made.rows):
            answered = (made.worker == made.worker[row]) & (met >= 0)
            answered &= made.end_s + latency_s + latency_s <= made.start_s[row]
            assert made.read[row, shard] == met[answered].max(initial=0)


@pytest.mark.parametrize("policy", [tg.Async(wait=False), tg.RampUp(tg.Async(wait=False), 20)])
def test_a_network_of_no_latency_is_none(policy: Policy) -> None:
    """But for who is told of the last update before the run ends."""
    plain = tg.schedule(policy, tg.Gamma(**GAMMA), updates=200, shards=2)
    none = tg.schedule(policy, tg.Gamma(**GAMMA, network=Network()), updates=200, shards=2)
    assert none.group_time_s.tolist() == plain.group_time_s.tolist()
    assert none.group_rows.tolist() == plain.group_rows.tolist()
    assert none.read.tolist() == plain.read[: none.rows].tolist()


def test_it_loses_no_time_and_pays_in_delay() -> None:
    network = Network(latency_s=1.0)
    made = {
        wait: tg.schedule(tg.Async(wait=wait), tg.Gamma(**GAMMA, network=network), updates=400)
        for wait in (True, False)
    }
    # A step takes 1 s and the way there and back 2 s.
    assert made[True].end_time == pytest.approx(3 * made[False].end_time, rel=0.05)
    assert made[False].delays.mean() > made[True].delays.mean() + 4


def test_a_stopped_shard_does_not_keep_it_going_for_ever() -> None:
    outage = tg.Outage(1, 5.0)
    cluster = tg.Gamma(**GAMMA, network=Network(latency_s=0.1, outages=(outage,)))
    with pytest.raises(ValueError, match=r"shards \[1\] have stopped for good"):
        tg.schedule(tg.Async(wait=False), cluster, updates=100, shards=2)
