"""Schedules by hand: what each policy must make of an order that fits on paper."""

import gc
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Constant
from tardigrad.engine.result_files import schedule_facts
from tardigrad.policies import Policy
from tardigrad.scheduling.analysis import Summary


def test_async_by_hand() -> None:
    """Versions read, delays and rows of a short order."""
    made = tg.Schedule.from_order([0, 1, 0, 2, 1], num_workers=3)
    assert made.worker.tolist() == [0, 1, 2, 0, 1, 0, 2, 1]
    assert made.step.tolist() == [0, 0, 0, 1, 1, 2, 1, 2]
    assert made.read[:, 0].tolist() == [0, 0, 0, 1, 2, 3, 4, 5]
    assert made.group_rows.tolist() == [0, 1, 3, 2, 4]
    assert made.delays.tolist() == [0, 1, 1, 3, 2]
    assert (made.updates, made.end_time, made.clockless) == (5, 5.0, True)
    assert made.applied.tolist() == [2, 2, 1]
    assert made.dropped.tolist() == [0, 0, 0]


def test_async_without_waiting_reads_the_version_before_its_own_push() -> None:
    made = tg.Schedule.from_order([0, 1, 0, 0], 2, tg.Async(wait=False))
    assert made.read[:, 0].tolist() == [0, 0, 0, 1, 2, 3]
    assert made.delays.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize("shards", [1, 4])
def test_a_gradient_counts_once_at_however_many_shards(shards: int) -> None:
    """Where messages take no time, what one shard applies or drops all others do."""
    made = tg.schedule(tg.Backup(2), tg.Gamma(workers=6), updates=50, shards=shards)
    one = tg.schedule(tg.Backup(2), tg.Gamma(workers=6), updates=50)
    assert made.applied.sum() == 4 * 50
    assert made.applied.tolist() == one.applied.tolist()
    assert made.dropped.tolist() == one.dropped.tolist()
    assert made.dropped.sum() == len(one.drop_row) > 0
    assert schedule_facts(made)["dropped"] == len(one.drop_row)
    assert Summary.of(made).dropped == Summary.of(one).dropped
    assert Summary.of(made).gradients_per_s == Summary.of(one).gradients_per_s


def test_a_gradient_dropped_at_one_shard_alone_counts_in_both() -> None:
    """Messages take so differently long that each shard waits for other workers."""
    cluster = tg.Gamma(workers=6, network=tg.Network(latency_s=30.0, jitter=3.0))
    made = tg.schedule(tg.PartialPull(tg.Backup(2), 0.5), cluster, updates=50, shards=2)
    at_one = {int(row) for row in made.group_rows} & {int(row) for row in made.drop_row}
    assert at_one
    assert made.dropped.sum() == len(set(made.drop_row.tolist())) < len(made.drop_row)
    assert made.applied.sum() == len(set(made.group_rows.tolist()))
    share = len(made.drop_row) / (len(made.drop_row) + len(made.group_rows))
    assert Summary.of(made).dropped == pytest.approx(share)


def test_sync_by_hand() -> None:
    """Whatever the order of arrival, a group stands in worker order and has no delay."""
    made = tg.Schedule.from_order([2, 0, 1, 1, 2, 0, 0], 3, tg.Sync())
    assert made.group_rows.tolist() == [0, 1, 2, 3, 4, 5]
    assert made.group_start.tolist() == [0, 3, 6]
    assert made.group_time_s.tolist() == [3.0, 6.0]
    assert not made.delays.any()
    assert made.updates == 2
    assert np.isnan(made.end_s[7:]).all()


def test_an_order_too_short_for_a_round_makes_no_update() -> None:
    made = tg.Schedule.from_order([0, 1], 3, tg.Sync())
    assert (made.updates, made.end_time, made.rows) == (0, 0.0, 3)
    task = tg.FunctionTask(tg.tasks.quadratic(3).start(), lambda view, worker, step: view)
    assert (tg.execute(made, task, tg.rules.sgd(0.1)).params == task.start()).all()


def test_shards_read_and_apply_alike_where_messages_take_no_time() -> None:
    one, three = (tg.Schedule.from_order([0, 1, 1, 0], 2, shards=shards) for shards in (1, 3))
    assert three.read.tolist() == [[v] * 3 for v in one.read[:, 0].tolist()]
    assert three.group_shard.tolist() == [0, 1, 2] * 4
    assert three.delays.tolist() == np.repeat(one.delays, 3).tolist()
    assert three.updates == one.updates == 4


def test_time_and_waiting() -> None:
    """Two workers of 1 s and 3 s: alone they never wait, in step the fast one waits 2 s a round."""
    pair = Constant(workers=2, step_s=(1.0, 3.0))
    free = tg.schedule(tg.Async(), pair, updates=8)
    assert free.group_time_s.tolist() == [1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 6.0, 6.0]
    # At 3 s and 6 s both arrive; who started first is served first.
    assert free.worker[free.group_rows].tolist() == [0, 0, 1, 0, 0, 0, 1, 0]
    assert free.waiting_s.tolist() == [0.0, 0.0]
    lock = tg.schedule(tg.Sync(), pair, updates=4)
    assert lock.group_time_s.tolist() == [3.0, 6.0, 9.0, 12.0]
    assert lock.waiting_s.tolist() == [8.0, 0.0]


@pytest.mark.parametrize(
    ("order", "workers", "policy", "message"),
    [
        ([0, 3], 3, tg.Async(), r"order\[1\] names worker 3, but there are 3 workers: use 0 to 2"),
        ([0, -1], 3, tg.Async(), r"order\[1\] names worker -1"),
        ([0, 1, 0], 3, tg.Sync(), r"order\[2\] names worker 0, which is still waiting.*\[2\]"),
        ([], 3, tg.Async(), "order is empty"),
        ([0, 1.5], 3, tg.Async(), r"order\[1\] must be the number of a worker, got 1.5"),
        ([0, "1"], 3, tg.Async(), r"order\[1\] must be the number of a worker, got '1'"),
        ([0], 0, tg.Async(), "num_workers must be a whole number of at least 1"),
        ([0], 1.0, tg.Async(), "num_workers must be a whole number"),
    ],
)
def test_an_impossible_order_is_refused(
    order: list[int], workers: int, policy: Policy, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tg.Schedule.from_order(order, workers, policy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": None}, "cluster is missing.*Gamma"),
        ({"updates": 0}, "updates must be a whole number of at least 1, got 0"),
        ({"updates": 2.5}, "updates must be a whole number"),
        ({"shards": 0}, "shards must be a whole number of at least 1"),
        ({"seed": 0.5}, "seed must be a whole number"),
    ],
)
def test_a_schedule_that_cannot_be_made_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tg.schedule(**({"cluster": tg.Gamma(workers=2)} | options))


def test_orders_may_be_arrays() -> None:
    order = np.array([1, 0, 1])
    assert tg.Schedule.from_order(order, 2) == tg.Schedule.from_order([1, 0, 1], 2)


def test_schedules_differ_by_seed_and_agree_by_seed() -> None:
    first, again, other = (tg.schedule(cluster=tg.Gamma(4), updates=50, seed=s) for s in (1, 1, 2))
    assert first == again
    assert first != other
    assert first != "a schedule"


@pytest.mark.parametrize("heterogeneous", [False, True])
def test_another_worker_changes_nobody_elses_times(heterogeneous: bool) -> None:
    few, more = (
        tg.schedule(tg.Async(), tg.Gamma(n, heterogeneous), updates=200, seed=3) for n in (3, 5)
    )
    for worker in range(3):
        ends = [made.end_s[made.worker == worker] for made in (few, more)]
        common = min(int(np.isfinite(end).sum()) for end in ends)
        assert common > 20
        assert np.array_equal(ends[0][:common], ends[1][:common])


def test_a_finished_loop_leaves_no_cycles_behind() -> None:
    """Those of 100,000 workers would be half a million objects."""
    gc.collect()
    gc.disable()
    try:
        tg.schedule(tg.Async(), tg.Gamma(workers=500), updates=1000, bulk=False)
        assert gc.collect() < 500
    finally:
        gc.enable()
