"""Quorum, Rennala, Ringmaster and SoftSync of a size, event by event."""

from typing import Any

import pytest

import tardigrad as tg
from tardigrad.policies import Apply, Drop, SetTimer
from tests.policies.hand_fed_shard import Shard, dropped, releases

unchecked: Any = tg
"""For arguments that a type checker would refuse."""


def test_a_quorum_waits_for_some_and_then_a_little() -> None:
    shard = Shard(tg.Quorum(2, grace_s=0.5), 4)
    assert shard.push(3) == []
    assert shard.push(1) == [SetTimer(0.5, 0)]
    assert shard.push(0) == []  # within the grace
    assert shard.timer(0) == [Apply((2, 1, 0)), *releases(0, 1, 3)]
    assert shard.push(2) == dropped(3, "too late", 2)
    assert shard.timer(0) == []  # of a version that is over
    assert shard.push(2, stamp=1) == []


def test_a_quorum_ends_when_all_have_answered() -> None:
    shard = Shard(tg.Quorum(2, grace_s=0.5), 3)
    assert shard.push(2) == []
    assert shard.push(0) == [SetTimer(0.5, 0)]
    assert shard.push(1) == [Apply((1, 2, 0)), *releases(0, 1, 2)]
    assert shard.timer(0) == []


def test_without_a_grace_the_quorum_is_enough() -> None:
    shard = Shard(tg.Quorum(2), 3)
    assert shard.push(2) == []
    assert shard.push(0) == [Apply((1, 0)), *releases(0, 2)]
    assert not tg.Quorum(2).needs_clock
    assert tg.Quorum(2, 0.1).needs_clock


def test_what_is_late_is_one_more_in_the_next_update_but_not_in_its_quorum() -> None:
    shard = Shard(tg.Quorum(2, late="next"), 3)
    shard.push(0)
    assert shard.push(1) == [Apply((0, 1)), *releases(0, 1)]
    assert shard.push(2, stamp=0) == releases(2)  # kept, and its worker goes on
    assert shard.push(0, stamp=1) == []  # one of this version, beside the one that was late
    assert shard.push(2, stamp=1) == [Apply((3, 2, 4)), *releases(0, 2)]


def test_a_quorum_shrinks_with_those_present_and_begins_its_grace_again() -> None:
    shard = Shard(tg.Quorum(3, grace_s=0.5), 4)
    shard.push(0)
    shard.push(1)
    assert shard.push(2) == [SetTimer(0.5, 0)]
    assert shard.leave(1) == []  # three are present, of whom two have answered
    assert shard.timer(0) == []
    assert shard.leave(3) == [Apply((0, 1, 2)), *releases(0, 2)]
    shard = Shard(tg.Quorum(3, grace_s=0.5), 5)
    for worker in (0, 1, 2):
        shard.push(worker)
    shard.leave(1)
    assert shard.timer(0) == []
    assert shard.push(3) == [SetTimer(0.5, 0)]
    assert shard.timer(0) == [Apply((0, 1, 2, 3)), *releases(0, 2, 3)]


def test_what_is_kept_of_an_earlier_stay_gives_way_to_the_newer() -> None:
    shard = Shard(tg.Quorum(2, late="next"), 3)
    shard.push(0)
    shard.push(1)
    shard.push(2, stamp=0)  # row 2, kept
    shard.leave(2)
    shard.join(2)
    assert shard.push(2, stamp=1) == [Drop(2, "earlier stay")]
    assert shard.push(2, stamp=0, stay=0) == [Drop(4, "earlier stay")]
    assert shard.push(1, stamp=1) == [Apply((5, 3)), *releases(1, 2)]


def test_rennala_takes_several_of_one_worker_and_drops_older_versions() -> None:
    shard = Shard(tg.Rennala(3), 3)
    assert shard.push(1) == releases(1)
    assert shard.push(1) == releases(1)
    assert shard.push(0) == [Apply((2, 0, 1)), *releases(0)]
    assert shard.push(2) == dropped(3, "old version", 2)
    assert shard.push(1) == dropped(4, "old version", 1)
    assert shard.push(2, stamp=1) == releases(2)


def test_rennala_waits_for_nobody_who_left_and_keeps_what_they_gave() -> None:
    shard = Shard(tg.Rennala(2), 2)
    assert shard.push(0) == releases(0)
    assert shard.leave(0) == []
    assert shard.push(1) == [Apply((0, 1)), *releases(1)]


def test_rennala_goes_on_with_less_where_all_wait_for_it() -> None:
    """A push that reached another shard alone was lost with its worker."""
    shard = Shard(tg.Rennala(2), 2)
    assert shard.push(0) == releases(0)
    assert shard.half.on_request(0, 1, 0.0) == []
    assert shard.half.on_request(1, 1, 0.0) == [Apply((0,)), *releases(0, 1)]


def test_ringmaster_takes_what_is_below_its_bound() -> None:
    shard = Shard(tg.Ringmaster(1), 3)
    assert shard.push(0) == [Apply((0,)), *releases(0)]
    assert shard.push(1, read=0) == dropped(1, "delay at bound", 1)
    assert shard.push(1, read=1) == [Apply((2,)), *releases(1)]


def test_soft_sync_of_a_size_may_hold_more_than_there_are_workers() -> None:
    shard = Shard(tg.SoftSync(size=3, wait=False), 2)
    assert shard.push(0) == releases(0)
    assert shard.push(0) == releases(0)
    assert shard.push(1) == [Apply((0, 1, 2)), *releases(1)]


def test_soft_sync_of_a_size_that_waits_shrinks_with_the_workers() -> None:
    shard = Shard(tg.SoftSync(size=3), 3)
    assert shard.push(0) == []
    assert shard.push(2) == []
    assert shard.leave(1) == [Apply((0, 1)), *releases(0, 2)]


BAD: list[tuple[Any, str]] = [
    (lambda: tg.Quorum(0), "size must be a whole number of at least 1"),
    (lambda: tg.Quorum(2, -1.0), "grace_s must not be negative"),
    (lambda: unchecked.Quorum(2, late="keep"), "late must be one of 'drop', 'next', got 'keep'"),
    (lambda: unchecked.Quorum(2, weights="tokens"), "weights must be one of 'equal', 'samples', "),
    (lambda: tg.Quorum(2, grace_deviations=-1.0), "grace_deviations must not be negative"),
    (lambda: tg.Quorum(2, 0.5, grace_deviations=5.0), r"Quorum takes grace_s=….*=0.5 and .*=5.0"),
    (lambda: tg.Quorum(5).check(4, 1), "size = 5 gradients .* 4 workers: use 1 to 4"),
    (lambda: tg.Rennala(0), "batch must be a whole number of at least 1"),
    (lambda: tg.Ringmaster(0), "bound must be a whole number of at least 1"),
    (lambda: tg.SoftSync(), r"SoftSync takes groups=….* or size=….*groups=None and size=None"),
    (lambda: tg.SoftSync(2, size=2), "got groups=2 and size=2"),
    (lambda: tg.SoftSync(size=0), "size must be a whole number of at least 1"),
    (lambda: tg.SoftSync(size=5).check(4, 1), "wait for each other: use 1 to 4, or wait=False"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_bad_argument_of_a_policy_is_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_waiting_size_may_be_larger_where_nobody_waits() -> None:
    tg.SoftSync(size=5, wait=False).check(4, 1)
