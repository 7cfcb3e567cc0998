"""What control makes of a link that reads no tensors, and how traffic is counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Absence, Constant, Network
from tardigrad.links import Link
from tardigrad.scheduling import traffic, validate
from tardigrad.scheduling.schedule import MERGED


def test_full_makes_the_schedule_without_a_link() -> None:
    parts: dict[str, Any] = {"policy": tg.Async(), "cluster": tg.Gamma(workers=5), "updates": 40}
    assert tg.schedule(link=tg.Full(), **parts) == tg.schedule(**parts)


@pytest.mark.parametrize("shards", [1, 3])
def test_every_one_is_full(shards: int) -> None:
    parts: dict[str, Any] = {"cluster": tg.Gamma(workers=5), "updates": 40, "shards": shards}
    full, every = tg.schedule(**parts), tg.schedule(link=tg.Every(1, 1), **parts)
    for name in ("worker", "read", "group_rows", "group_shard", "group_time_s", "drop_row"):
        assert np.array_equal(getattr(full, name), getattr(every, name)), name
    assert traffic(full, [4] * shards) == traffic(every, [4] * shards)


def test_every_kth_pull_leaves_the_view_where_it_was() -> None:
    made = tg.schedule(cluster=Constant(workers=1), updates=9, link=tg.Every(pull=3))
    assert made.read[:, 0].tolist() == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9]
    assert made.delays.tolist() == [0, 1, 2] * 3
    counted = traffic(made, [12])
    assert (counted.push.potential, counted.push.sent) == (9, 9)
    assert (counted.pull.potential, counted.pull.sent) == (9, 3)
    assert (counted.pull.potential_bytes, counted.pull.sent_bytes) == (108, 36)


def test_every_kth_push_takes_the_unsent_with_it() -> None:
    made = tg.schedule(cluster=Constant(workers=1), updates=3, link=tg.Every(push=3))
    validate(made)
    assert made.group_rows.tolist() == [0, 3, 6]
    assert made.merged == {(3, 0): [1, 2], (6, 0): [4, 5]}
    assert made.read[:, 0].tolist() == [0, 1, 1, 1, 2, 2, 2, 3]  # headers are answered
    assert made.dropped.sum() == 0
    assert (traffic(made, [4]).push.potential, traffic(made, [4]).push.sent) == (7, 3)


def test_traffic_up_to_a_group_counts_what_crossed_before_it() -> None:
    made = tg.schedule(cluster=Constant(workers=1), updates=6, link=tg.Every(pull=3))
    assert [traffic(made, [4], g).pull.sent for g in range(7)] == [0, 0, 0, 0, 1, 1, 1]
    assert [traffic(made, [4], g).push.sent for g in range(7)] == list(range(7))


def test_shards_of_different_size_are_weighed() -> None:
    made = tg.schedule(cluster=Constant(workers=2), updates=5, shards=2, link=tg.Every(pull=2))
    counted = traffic(made, [100, 1])
    sent = [
        int(((made.wire_shard == s) & (made.wire_pull == 1) & (made.wire_sent == 1)).sum())
        for s in (0, 1)
    ]
    assert counted.pull.sent_bytes == 100 * sent[0] + sent[1]
    assert counted.push.sent_bytes == counted.push.potential_bytes


def test_what_does_not_cross_takes_no_transfer_time() -> None:
    network = Network(latency_s=0.5, bandwidth_bytes_s=1.0, model_bytes=10.0)
    cluster = Constant(workers=1, network=network)
    full = tg.schedule(cluster=cluster, updates=3, link=tg.Every())
    rare = tg.schedule(cluster=cluster, updates=3, link=tg.Every(pull=100))
    assert full.group_time_s.tolist() == [11.5, 33.5, 55.5]
    assert rare.group_time_s.tolist() == [11.5, 23.5, 35.5]


def test_a_worker_that_leaves_loses_the_unsent_and_returns_to_fresh_parameters() -> None:
    cluster = Constant(workers=2, absences=(Absence(worker=1, leaves_s=3.5, returns_s=6.2),))
    made = tg.schedule(cluster=cluster, updates=8, link=tg.Every(push=3, pull=50))
    validate(made)
    lost = made.drop_row[made.drop_reason == made.reasons.index("unsent")]
    assert made.worker[lost].tolist() == [1, 1]
    assert made.step[lost].tolist() == [1, 2]
    back = made.read[made.start_s >= 6.2][0]
    assert made.worker[made.start_s >= 6.2][0] == 1
    assert back[0] > 0
    first = [r for r in made.group_rows.tolist() if made.worker[r] == 1 and made.end_s[r] > 6.2]
    assert made.step[first[0]] == 4  # steps 0 to 2 came before, 3 was being computed when it left


def test_stale_synchronous_counts_headers_as_steps() -> None:
    cluster = tg.Gamma(workers=4, heterogeneous=True)
    made = tg.schedule(tg.StaleSynchronous(2), cluster, 60, link=tg.Every(push=4))
    done = np.zeros(4, dtype=int)
    for row in np.argsort(made.end_s[np.isfinite(made.end_s)], kind="stable"):
        done[made.worker[row]] += 1
        assert done.max() - done.min() <= 3


@pytest.mark.parametrize(
    "link", [tg.Every(push=2), tg.BandwidthAware(c_push=1, on_drop="average"), tg.Budget(9, "push")]
)
def test_averaging_is_refused_where_workers_wait_for_each_other(link: Link) -> None:
    from tardigrad.tasks import quadratic

    with pytest.raises(ValueError, match="asynchronous"):
        tg.simulate(quadratic(5), tg.rules.fasgd(0.1), tg.Sync(), tg.Gamma(workers=2), 3, link=link)


def test_every_pull_works_under_sync() -> None:
    made = tg.schedule(tg.Sync(), Constant(workers=2), 4, shards=2, link=tg.Every(pull=2))
    assert made.delays.max() == 1


@pytest.mark.parametrize("link", [tg.BandwidthAware(), tg.Budget(5)])
def test_a_schedule_alone_cannot_serve_a_link_that_reads_tensors(link: Link) -> None:
    with pytest.raises(ValueError, match=r"tg\.simulate"):
        tg.schedule(cluster=tg.Gamma(workers=2), updates=3, link=link)


def test_decisions_are_saved_and_loaded(tmp_path: Path) -> None:
    made = tg.schedule(cluster=tg.Gamma(workers=3), updates=20, link=tg.Every(push=2, pull=3))
    made.save(tmp_path / "s")
    again = tg.Schedule.load(tmp_path / "s")
    assert again == made
    assert again.merged == made.merged != {}


def test_a_merged_gradient_without_a_push_is_refused() -> None:
    from dataclasses import replace

    made = tg.schedule(cluster=Constant(workers=1), updates=2, link=tg.Every(push=2))
    last = made.rows - 1
    broken = replace(
        made,
        drop_row=np.append(made.drop_row, last),
        drop_shard=np.append(made.drop_shard, 0),
        drop_time_s=np.append(made.drop_time_s, 9.0),
        drop_reason=np.append(made.drop_reason, made.reasons.index(MERGED)),
        drop_after=np.append(made.drop_after, made.groups),
    )
    with pytest.raises(ValueError, match="no later push"):
        validate(broken)
