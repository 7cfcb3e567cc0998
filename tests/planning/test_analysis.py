"""What schedules say without tensors, against sums done by hand."""

import numpy as np

from tardigrad.clusters import Absence, Constant, Exponential, Network, Outage
from tardigrad.policies import Async, Sync
from tardigrad.scheduling import Schedule, schedule
from tardigrad.scheduling.analysis import (
    Distribution,
    Summary,
    arrivals_s,
    collect_times_s,
    waiting_share,
    waits_s,
)


def test_a_synchronous_round_is_known_to_the_second() -> None:
    made = schedule(Sync(), Constant(workers=3, step_s=(1.0, 2.0, 4.0)), updates=5)
    summary = Summary.of(made)
    assert summary.updates_per_s == 1 / 4
    assert summary.gradients_per_s == 3 / 4
    assert summary.waiting == (3 + 2 + 0) / 12
    assert summary.delay == Distribution(15, 0, 0, 0, 0, 0)
    assert summary.dropped == 0
    assert collect_times_s(made).tolist() == [[1.0, 2.0, 4.0]] * 5
    assert sorted(waits_s(made).tolist()) == [0.0] * 5 + [2.0] * 5 + [3.0] * 5
    assert made.waiting_s.tolist() == [15.0, 10.0, 0.0]


def test_asynchronous_workers_wait_for_the_network_only() -> None:
    assert waiting_share(schedule(Async(), Exponential(workers=4), updates=100)) == 0
    slow = Constant(workers=1, step_s=3.0, network=Network(latency_s=0.5))
    assert waiting_share(schedule(Async(), slow, updates=20)) == 0.25


def test_mean_asynchronous_delay_is_one_less_than_the_workers() -> None:
    summary = Summary.of(schedule(Async(), Exponential(workers=8), updates=20_000))
    assert abs(summary.delay.mean - 7) < 0.01


def test_collect_times_are_order_statistics() -> None:
    """The k-th of n exponentials takes 1/n + … + 1/(n−k+1) on average."""
    took = collect_times_s(schedule(Sync(), Exponential(workers=5), updates=4000))
    expected = np.cumsum(1 / np.arange(5, 0, -1))
    assert np.allclose(took.mean(axis=0), expected, rtol=0.06)


def test_a_gradient_lost_with_its_worker_was_computed_until_then() -> None:
    cluster = Constant(workers=2, step_s=1.0, absences=(Absence(1, 2.5, 5.0),))
    made = schedule(Sync(), cluster, updates=6)
    # On its return at 5 worker 1 begins the version that worker 0 has just done, which waits 1 s.
    # It had computed for half a second when it left.
    assert waiting_share(made) == 1 / (6 + 4 + 0.5 + 1)
    assert np.isfinite(collect_times_s(made)).sum(axis=1).tolist() == [2, 2, 1, 1, 2, 2]


def test_what_comes_to_a_stopped_shard_comes_when_it_is_back() -> None:
    network = Network(latency_s=0.1, outages=(Outage(shard=1, stops_s=2.0, returns_s=5.0),))
    cluster = Constant(workers=2, step_s=(1.0, 1.37), network=network)
    made = schedule(Async(), cluster, updates=20, shards=2)
    came_s = arrivals_s(made, network.realise(0, 2, 2))
    sent_s = made.end_s + 0.1
    stopped = (sent_s >= 2.0) & (sent_s < 5.0)
    assert stopped.any()
    assert np.array_equal(came_s[:, 0], sent_s, equal_nan=True)
    assert np.array_equal(came_s[:, 1], np.where(stopped, 5.0, sent_s), equal_nan=True)
    for shard in (0, 1):  # each is applied when it has come
        of = made.group_shard == shard
        assert np.array_equal(came_s[made.group_rows[of], shard], made.group_time_s[of])


def test_an_empty_schedule_has_no_speed() -> None:
    made = Schedule.from_order([0], num_workers=2, policy=Sync())
    summary = Summary.of(made)
    assert (summary.gradients_per_s, summary.waiting, summary.delay.count) == (0.0, 0.0, 0)
