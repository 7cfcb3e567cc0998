"""Sync and Backup, event by event."""

import pytest

from tardigrad import Async, Backup, Sync
from tardigrad.policies import Apply, Drop, PullAll, Release, Request, Start
from tests.policies.hand_fed_shard import Shard, dropped, releases


def test_sync_waits_for_all_and_applies_in_worker_order() -> None:
    shard = Shard(Sync(), 3)
    assert shard.push(2) == []
    assert shard.push(0) == []
    assert shard.push(1) == [Apply((1, 2, 0)), *releases(0, 1, 2)]
    assert shard.half.version == 1


def test_backup_takes_the_first_and_drops_the_rest() -> None:
    shard = Shard(Backup(1), 3)
    assert shard.push(2) == []
    assert shard.push(0) == [Apply((1, 0)), *releases(0, 2)]
    assert shard.push(1) == dropped(2, "old version", 1)
    assert shard.push(1, stamp=1) == []
    assert shard.push(0, stamp=1) == [Apply((4, 3)), *releases(0, 1)]


def test_backup_quota_follows_those_who_leave_and_join() -> None:
    shard = Shard(Backup(1), 4)
    assert shard.push(0) == []
    assert shard.push(1) == []
    assert shard.leave(3) == [Apply((0, 1)), *releases(0, 1)]  # three are there, two are enough
    assert shard.push(2) == dropped(2, "old version", 2)
    assert shard.join(3) == releases(3)
    assert shard.push(0, stamp=1) == []
    assert shard.push(3, stamp=1) == []
    assert shard.push(1, stamp=1) == [Apply((3, 5, 4)), *releases(0, 1, 3)]


def test_backup_never_waits_for_less_than_one() -> None:
    shard = Shard(Backup(2), 3)
    assert shard.leave(1) == []
    assert shard.leave(2) == []
    assert shard.push(0) == [Apply((0,)), Release(0)]


def test_gradient_of_a_worker_that_left_is_applied_but_not_counted() -> None:
    shard = Shard(Sync(), 3)
    shard.push(2)
    assert shard.leave(2) == []
    assert shard.push(1) == []
    assert shard.push(0) == [Apply((2, 1, 0)), *releases(0, 1)]


def test_gradient_that_arrives_after_its_worker_left() -> None:
    shard = Shard(Backup(0), 3)
    assert shard.leave(2) == []
    assert shard.push(2) == []
    assert shard.push(0) == []
    assert shard.push(1) == [Apply((1, 2, 0)), *releases(0, 1)]
    assert shard.push(2) == dropped(3, "old version", 2)[:1]  # nobody to answer


def test_worker_that_returns_within_the_round_is_waited_for_again_and_counts_once() -> None:
    shard = Shard(Sync(), 2)
    shard.push(1)
    shard.leave(1)
    assert shard.join(1) == releases(1)
    assert shard.push(0) == []
    assert shard.push(1) == [Drop(0, "earlier stay"), Apply((1, 2)), *releases(0, 1)]


def test_gradient_of_an_earlier_stay_counts_for_no_quota_and_is_not_answered() -> None:
    shard = Shard(Sync(), 3)
    shard.leave(2)
    shard.join(2)
    assert shard.push(2, stay=0) == []
    assert shard.push(0) == []
    assert shard.push(1) == []  # worker 2 is waited for
    assert shard.push(2) == [Drop(0, "earlier stay"), Apply((1, 2, 3)), *releases(0, 1, 2)]
    assert shard.push(2, stamp=1) == []
    assert shard.push(2, stamp=1, stay=0) == [Drop(5, "earlier stay")]
    shard.leave(2)
    shard.push(0, stamp=1)
    shard.push(1, stamp=1)  # the group of those who are there, and what is left of worker 2
    assert shard.push(2, stamp=1, stay=0) == [Drop(8, "old version")]


def test_nothing_is_applied_while_everybody_is_gone() -> None:
    shard = Shard(Sync(), 2)
    shard.push(0)
    assert shard.leave(0) == []
    assert shard.leave(1) == []
    assert shard.join(1) == releases(1)
    assert shard.push(1) == [Apply((0, 1)), Release(1)]


def test_newer_stamp_counts_and_is_not_waited_for_in_its_own_round() -> None:
    """Under partial pulling a shard may lag: worker 1 is a round ahead of it."""
    shard = Shard(Sync(), 2)
    assert shard.push(1, stamp=0) == []
    assert shard.push(1, stamp=1) == []
    assert shard.push(0, stamp=0) == [Apply((2, 0, 1)), *releases(0, 1, 1)]
    # Round 1: worker 1 has given what it had, so worker 0 completes it alone.
    assert shard.push(0, stamp=1) == [Apply((3,)), Release(0)]


def test_pull_at_the_same_version_asks_the_shards_behind() -> None:
    half = PullAll(3, same_version=True)
    assert half.begin() == [Start(0)]
    assert half.finished(1.0) == []
    assert half.pulled(0, 2, 1.0) == []
    assert half.pulled(1, 1, 1.0) == []
    assert half.pulled(2, 2, 1.0) == [Request(1, 2)]
    assert half.pulled(1, 2, 2.0) == [Start(2)]
    assert half.have == [2, 2, 2]


def test_request_is_answered_when_the_version_is_there() -> None:
    shard = Shard(Async(), 2)
    assert shard.half.on_request(1, 0, 0.0) == releases(1)
    assert shard.half.on_request(1, 1, 0.0) == []
    assert shard.push(0) == [Apply((0,)), *releases(0, 1)]


def test_request_of_a_worker_that_left_is_forgotten() -> None:
    shard = Shard(Async(), 2)
    assert shard.half.on_request(1, 1, 0.0) == []
    shard.leave(1)
    assert shard.push(0) == [Apply((0,)), Release(0)]


def test_worker_that_asks_for_the_next_version_is_not_waited_for() -> None:
    """It joined while another shard was a version further, so it has nothing for this round."""
    shard = Shard(Sync(), 3)
    shard.push(0)
    assert shard.half.on_request(1, 1, 0.0) == []
    assert shard.push(2) == [Apply((0, 1)), *releases(0, 2), Release(1)]
    assert shard.push(0, stamp=1) == []
    assert shard.push(2, stamp=1) == []
    assert shard.half.on_request(1, 2, 0.0) == [Apply((2, 3)), *releases(0, 2), Release(1)]


def test_backup_does_not_count_a_request_as_a_gradient() -> None:
    shard = Shard(Backup(1), 4)
    shard.push(0)
    shard.push(1)
    assert shard.half.on_request(3, 1, 0.0) == []
    assert shard.push(2) == [Apply((0, 1, 2)), *releases(0, 1, 2), Release(3)]


@pytest.mark.parametrize(("backups", "workers"), [(3, 3), (5, 3)])
def test_more_backups_than_workers(backups: int, workers: int) -> None:
    with pytest.raises(ValueError, match=f"at most {workers - 1} backups"):
        Backup(backups).check(workers, 1)


@pytest.mark.parametrize("backups", [-1, 1.5, True])
def test_bad_backups(backups: int) -> None:
    with pytest.raises(ValueError, match="backups must be a whole number of at least 0"):
        Backup(backups)
