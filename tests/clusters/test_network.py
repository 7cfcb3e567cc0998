"""Messages that take time, slow shards, and shards that stop."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tardigrad.clusters import Absence, Constant, Exponential, Network, Outage, SlowShard
from tardigrad.policies import Async, Sync
from tardigrad.scheduling import Schedule, schedule, validate


def test_a_transfer_takes_latency_and_its_share_of_the_bytes() -> None:
    network = Network(latency_s=0.5, bandwidth_bytes_s=100.0, model_bytes=800.0)
    assert network.realise(0, workers=1, shards=1).push_s(0, 0, 0) == 0.5 + 8.0
    assert network.realise(0, workers=1, shards=4).pull_s(0, 3, 9) == 0.5 + 2.0


def test_a_latency_may_be_a_whole_number() -> None:
    whole, real = (Network(x, jitter=1).realise(0, 1, 1).push_s(0, 0, 0) for x in (10, 10.0))
    assert whole == real


def test_a_slow_shard_takes_longer_both_ways() -> None:
    messages = Network(latency_s=1.0, slow_shards=(SlowShard(1, 3.0),)).realise(0, 2, 2)
    assert [messages.push_s(0, s, 0) for s in (0, 1)] == [1.0, 3.0]
    assert [messages.pull_s(1, s, 0) for s in (0, 1)] == [1.0, 3.0]


def test_rare_delays_hit_the_given_share_of_pulls_and_no_push() -> None:
    network = Network(latency_s=0.1, rare_probability=0.05, rare_delay_s=4.0)
    messages = network.realise(0, workers=20, shards=10)
    pulls = np.array([messages.times(True, w, np.arange(100)) for w in range(20)])
    assert abs((pulls > 4).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / pulls.size)
    assert {round(float(t), 9) for t in pulls.ravel()} == {0.1, 4.1}
    assert (messages.times(False, 0, np.arange(1000)) == 0.1).all()


def test_a_message_time_is_a_function_of_pair_and_sequence() -> None:
    network = Network(latency_s=1.0, jitter=0.5)
    one, other = network.realise(7, 3, 4), network.realise(7, 3, 4)
    asked = [(w, s, q) for w in range(3) for s in range(4) for q in (0, 63, 64, 130)]
    forwards = [one.pull_s(*a) for a in asked]
    backwards = [other.pull_s(*a) for a in reversed(asked)][::-1]
    assert forwards == backwards
    assert len(set(forwards)) == len(forwards)
    assert forwards != [one.push_s(*a) for a in asked]
    jitter = one.times(True, 0, np.arange(20_000)) - 1.0
    assert abs(jitter.mean() - 0.5) < 0.01


def test_asynchronous_steps_take_the_journey_too() -> None:
    cluster = Constant(workers=1, step_s=2.0, network=Network(latency_s=0.25))
    made = schedule(Async(), cluster, updates=3)
    assert made.start_s.tolist()[:3] == [0.0, 2.5, 5.0]
    assert made.group_time_s.tolist() == [2.25, 4.75, 7.25]


def test_synchronous_rounds_wait_for_the_slowest_shard() -> None:
    network = Network(latency_s=0.5, slow_shards=(SlowShard(2, 4.0),))
    cluster = Constant(workers=3, step_s=1.0, network=network)
    made = schedule(Sync(), cluster, updates=4, shards=3)
    assert np.unique(made.start_s).tolist() == [0.0, 5.0, 10.0, 15.0]  # 1 + 2 + 2
    assert (made.delays == 0).all()


def test_no_time_at_all_is_no_network() -> None:
    free = Exponential(workers=5, network=Network())
    for policy in (Async(), Sync()):
        with_messages = schedule(policy, free, updates=40, seed=2, shards=2)
        without = schedule(policy, Exponential(workers=5), updates=40, seed=2, shards=2)
        for name in ("group_rows", "group_shard", "group_time_s"):
            assert np.array_equal(getattr(with_messages, name), getattr(without, name)), name
        common = min(with_messages.rows, without.rows)  # who still starts at the end may differ
        for name in ("worker", "start_s", "read"):
            rows = getattr(with_messages, name)[:common], getattr(without, name)[:common]
            assert np.array_equal(*rows), name


def test_a_stopped_shard_holds_everybody_up_until_it_returns() -> None:
    network = Network(outages=(Outage(shard=1, stops_s=2.5, returns_s=10.0),))
    cluster = Constant(workers=2, step_s=1.0, network=network)
    made = schedule(Async(), cluster, updates=8, shards=2)
    times = made.group_time_s[made.group_shard == 1]
    assert times.tolist() == [1.0, 1.0, 2.0, 2.0, 10.0, 10.0, 11.0, 11.0]
    validate(made)


def test_a_stopped_shard_hears_of_who_left_and_came_when_it_returns() -> None:
    """At 2 all who are there have pushed, and at 3 somebody comes: nothing happens before 10."""
    network = Network(outages=(Outage(shard=0, stops_s=1.5, returns_s=10.0),))
    for back in (3.0, 10.0):  # at 10 it must not come before it has left
        away = (Absence(1, 2.0, back),)
        cluster = Constant(workers=2, step_s=(1.0, 5.0), network=network, absences=away)
        made = schedule(Sync(), cluster, updates=3)
        assert made.group_time_s.tolist() == [10.0, 15.0, 20.0]
        assert np.diff(made.group_start).tolist() == [1, 2, 2]


def test_who_comes_and_goes_while_a_shard_is_stopped_is_answered_once() -> None:
    network = Network(outages=(Outage(shard=0, stops_s=1.5, returns_s=10.0),))
    away = (Absence(1, 2.0, 3.0), Absence(1, 4.0, 5.0))
    cluster = Constant(workers=2, step_s=1.0, network=network, absences=away)
    made = schedule(Async(), cluster, updates=20)
    assert made.start_s[made.worker == 1].tolist()[2:5] == [10.0, 11.0, 12.0]


def test_a_shard_that_stops_for_good_ends_the_run_with_a_reason() -> None:
    network = Network(outages=(Outage(shard=1, stops_s=2.5),))
    cluster = Constant(workers=2, step_s=1.0, network=network)
    with pytest.raises(ValueError, match=r"shards \[1\] have stopped for good.*of 8"):
        schedule(Async(), cluster, updates=8, shards=2)


def test_a_shard_that_stops_for_good_while_all_is_on_its_way_is_named() -> None:
    """The last event is a worker's; the shard is still up then, and down when the push comes."""
    network = Network(latency_s=2.0, outages=(Outage(shard=0, stops_s=7.0),))
    cluster = Constant(workers=2, step_s=1.0, network=network)
    with pytest.raises(ValueError, match=r"shards \[0\] have stopped.*versions \[1\] of 8"):
        schedule(Sync(), cluster, updates=8)


def test_all_workers_gone_ends_the_run_with_a_reason() -> None:
    absences = (Absence(0, 2.5), Absence(1, 3.5))
    with pytest.raises(ValueError, match="all workers are gone"):
        schedule(Sync(), Constant(workers=2, absences=absences), updates=8)


def test_schedules_over_a_network_load_back_equal(tmp_path: Path) -> None:
    network = Network(latency_s=0.1, jitter=0.3, outages=(Outage(0, 1.0, 2.0),))
    cluster = Exponential(workers=3, network=network, absences=(Absence(1, 2.0, 3.0),))
    made = schedule(Async(), cluster, updates=20, shards=2)
    made.save(tmp_path / "made.schedule")
    assert Schedule.load(tmp_path / "made.schedule") == made


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Network(latency_s=-0.1), "latency_s"),
        (lambda: Network(jitter=-1.0), "jitter"),
        (lambda: Network(rare_delay_s=-4.0), "rare_delay_s"),
        (lambda: Network(rare_probability=1.5), "rare_probability"),
        (lambda: Network(bandwidth_bytes_s=1e9), "give both or neither"),
        (lambda: Network(bandwidth_bytes_s=0.0, model_bytes=1.0), "bandwidth_bytes_s"),
        (lambda: SlowShard(0, 0.0), "factor"),
        (lambda: Outage(0, 3.0, 2.0), "not after stops_s"),
        (lambda: Network(slow_shards=(SlowShard(4, 2.0),)).realise(0, 2, 4), "4 shards"),
        (lambda: Network(outages=(Outage(9, 2.0),)).realise(0, 2, 4), "outages names shard 9"),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make()
