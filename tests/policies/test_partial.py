"""Partial (PSP-SGD) and PartialPull, event by event."""

from typing import Any

import pytest

import tardigrad as tg
from tardigrad import Async, Deadline, Partial, PartialPull, RampUp, StaleSynchronous
from tardigrad.policies import Apply, Drop, Release, SetTimer, Start
from tests.policies.hand_fed_shard import Shard, releases


def test_push_applies_at_the_quota_scales_linearly_and_broadcasts() -> None:
    shard = Shard(Partial(push=2), 4)
    assert shard.push(3) == []
    assert shard.push(1) == [Apply((1, 0), scale=2.0), *releases(0, 1, 2, 3)]
    assert shard.push(0) == [Drop(2, "old stamp")]  # its worker has had the broadcast
    assert shard.push(1, stamp=1, read=0) == []  # judged by the stamp, not by the version read
    assert shard.push(2, stamp=3) == [Apply((3, 4), scale=2.0), *releases(0, 1, 2, 3)]


def test_push_timeout_takes_more_and_its_old_timer_means_nothing() -> None:
    shard = Shard(Partial(push=2, push_timeout_s=5.0), 4)
    assert shard.push(0) == []
    assert shard.push(1) == [SetTimer(5.0, 0)]
    assert shard.push(2) == []
    assert shard.timer(0) == [Apply((0, 1, 2), scale=3.0), *releases(0, 1, 2, 3)]
    assert shard.push(3) == [Drop(3, "old stamp")]
    assert shard.timer(0) == []
    for worker in (0, 1, 2):
        shard.push(worker, stamp=1)
    everybody = shard.push(3, stamp=1)  # all have answered: no need to wait for the timer
    assert everybody == [Apply((4, 5, 6, 7), scale=4.0), *releases(0, 1, 2, 3)]
    assert shard.timer(1) == []


def test_push_timeout_waits_anew_where_a_return_took_the_quota_back() -> None:
    """One gradient of worker 0's second stay stands in for two of its first."""
    shard = Shard(Partial(push=2, push_timeout_s=5.0), 4)
    assert shard.push(0) == []
    assert shard.push(0, stamp=1) == [SetTimer(5.0, 0)]
    shard.leave(0)
    shard.join(0)
    assert shard.push(0, stamp=1) == [Drop(0, "earlier stay"), Drop(1, "earlier stay")]
    assert shard.timer(0) == []
    assert shard.push(1) == [SetTimer(5.0, 0)]
    assert shard.timer(0) == [Apply((2, 3), scale=2.0), *releases(0, 1, 2, 3)]


def test_push_dropped_gradient_is_no_answer() -> None:
    shard = Shard(Partial(push=None), 2)
    shard.push(0)
    shard.push(1)
    assert shard.push(0, stamp=1) == []
    assert shard.push(1, stamp=0) == [Drop(3, "old stamp")]
    assert shard.push(1, stamp=1) == [Apply((2, 4), scale=2.0), *releases(0, 1)]


def test_push_of_two_rounds_may_count_in_one_and_the_second_is_not_waited_for() -> None:
    shard = Shard(Partial(push=3), 3)
    shard.push(0, stamp=0)
    shard.push(0, stamp=1)
    assert shard.push(1, stamp=0) == [Apply((0, 1, 2), scale=3.0), *releases(0, 1, 2)]
    assert shard.push(2, stamp=0) == [Drop(3, "old stamp")]
    assert shard.push(1, stamp=1) == []
    # Round 1: worker 0 has no other gradient for it, so two are all that will come.
    assert shard.push(2, stamp=1) == [Apply((4, 5), scale=2.0), *releases(0, 1, 2)]


def test_push_follows_those_who_leave() -> None:
    shard = Shard(Partial(push=3), 4)
    shard.push(0)
    shard.push(1)
    assert shard.leave(3) == []
    assert shard.leave(2) == [Apply((0, 1), scale=2.0), *releases(0, 1)]
    assert shard.join(3) == releases(3)
    shard.push(0, stamp=1)
    shard.push(1, stamp=1)
    assert shard.leave(1) == []  # its gradient stays and counts
    assert shard.push(3, stamp=1) == [Apply((2, 3, 4), scale=3.0), *releases(0, 3)]


def test_pull_starts_at_the_share_and_keeps_older_blocks() -> None:
    half = Partial(pull=0.5).pull_half(4)
    assert half.begin() == [Start(0)]
    assert half.finished(1.0) == []
    assert half.pulled(2, 0, 1.0) == []  # older than round 1: dropped
    assert half.pulled(2, 1, 1.0) == []
    assert half.pulled(0, 1, 1.0) == [Start(1)]
    assert half.have == [1, 0, 1, 0]
    assert half.pulled(3, 1, 1.5) == []  # just after the start: in the next view
    assert half.finished(2.0) == []
    assert half.pulled(1, 1, 2.0) == []  # for a round that is over
    assert half.have == [1, 0, 1, 1]
    assert half.pulled(1, 2, 2.0) == []
    assert half.pulled(1, 2, 2.0) == []  # twice the same block is one block
    assert half.pulled(3, 2, 2.0) == [Start(2)]


def test_pull_timeout_waits_for_more() -> None:
    half = Partial(pull=0.5, pull_timeout_s=3.0).pull_half(4)
    half.finished(0.0)
    half.pulled(0, 1, 1.0)
    assert half.pulled(1, 1, 1.0) == [SetTimer(3.0, 1)]
    assert half.pulled(2, 1, 1.0) == []
    assert half.timer(1, 4.0) == [Start(1)]
    assert half.timer(1, 4.0) == []
    half.finished(5.0)
    half.pulled(0, 2, 5.0)
    assert half.pulled(1, 2, 5.0) == [SetTimer(3.0, 2)]
    half.pulled(2, 2, 5.0)
    assert half.timer(1, 6.0) == []  # the first wait's
    assert half.pulled(3, 2, 6.0) == [Start(2)]  # all have come
    assert half.timer(2, 8.0) == []


@pytest.mark.parametrize(("catch_up", "stamp"), [(True, 4), (False, 1)])
def test_worker_that_fell_behind(catch_up: bool, stamp: int) -> None:
    """Round 4 has come from the share of shards; one is at 5 and does not make a round."""
    half = Partial(pull=0.75, catch_up=catch_up).pull_half(4)
    for version in range(1, 5):
        for shard in (0, 1, 2):
            assert half.pulled(shard, version, 1.0) == []
    half.pulled(2, 5, 1.0)
    assert half.finished(2.0) == [Start(stamp)]
    assert half.have == [4, 4, 5, 0]


@pytest.mark.parametrize("catch_up", [True, False])
def test_worker_that_returns_waits_for_every_shard_once(catch_up: bool) -> None:
    half = Partial(pull=0.5, catch_up=catch_up).pull_half(3)
    half.rejoined()
    assert half.pulled(0, 7, 1.0) == []
    assert half.pulled(1, 6, 1.0) == []
    assert half.pulled(2, 8, 1.0) == [Start(7)]  # two of three are at 7 or newer
    half.finished(2.0)
    assert half.pulled(0, 8, 2.0) == [Start(8)]  # and shard 2 had 8 already


def test_share_is_rounded_up_but_not_by_floating_point() -> None:
    def needed(pull: float, shards: int) -> int:
        half = Partial(pull=pull).pull_half(shards)
        half.finished(0.0)
        return next(k for k in range(shards) if half.pulled(k, 1, 0.0)) + 1

    assert needed(0.9, 10) == 9
    assert needed(0.55, 100) == 55
    assert needed(0.551, 100) == 56
    assert needed(1e-9, 4) == 1
    assert needed(1.0, 7) == 7


def test_partial_pull_counts_answers_to_the_last_push() -> None:
    half = PartialPull(Async(), pull=0.6).pull_half(3)
    assert half.begin() == [Start(0)]
    assert half.finished(1.0) == []
    assert half.pulled(0, 4, 1.0) == []
    assert half.pulled(1, 3, 1.0) == [Start(4)]
    assert half.finished(2.0) == []
    assert half.pulled(2, 5, 2.0) == []  # to the push before: news, but not an answer to this one
    assert half.have == [4, 3, 5]
    assert half.pulled(0, 6, 2.0) == []
    assert half.pulled(2, 6, 2.0) == [Start(6)]


def test_partial_pull_times_out_and_returns() -> None:
    half = PartialPull(StaleSynchronous(1), pull=0.3, pull_timeout_s=2.0).pull_half(3)
    half.finished(0.0)
    assert half.pulled(1, 1, 0.0) == [SetTimer(2.0, 1)]
    assert half.timer(1, 2.0) == [Start(1)]
    half.rejoined()
    assert [half.pulled(s, 5 + s, 3.0) for s in range(3)] == [[], [], [Start(7)]]


def test_partial_pull_leaves_the_push_half_alone() -> None:
    shard = Shard(PartialPull(StaleSynchronous(0), pull=0.5), 2)
    assert shard.push(1) == [Apply((0,))]
    assert shard.push(0) == [Apply((1,)), Release(0), Release(1)]


def test_clocks_are_needed_by_timeouts_only() -> None:
    assert not Partial(push=6, pull=0.9).needs_clock
    assert Partial(push_timeout_s=1.0).needs_clock
    assert Partial(pull_timeout_s=1.0).needs_clock
    assert not PartialPull(Async(), pull=0.9).needs_clock
    assert PartialPull(Async(), pull=0.9, pull_timeout_s=1.0).needs_clock
    assert PartialPull(Deadline(1.0)).needs_clock


def test_bad_arguments() -> None:
    for pull in (0, -0.1, 1.1, 90, float("nan")):
        for make in (lambda b: Partial(pull=b), lambda b: PartialPull(Async(), pull=b)):
            with pytest.raises(ValueError, match="pull"):
                make(pull)
    with pytest.raises(ValueError, match="push must be a whole number of at least 1"):
        Partial(push=0)
    with pytest.raises(ValueError, match="push = 9 gradients never come from 8 workers"):
        Partial(push=9).check(8, 1)
    for timeout in ("push_timeout_s", "pull_timeout_s"):
        wrong: dict[str, Any] = {timeout: -1.0}
        with pytest.raises(ValueError, match=f"{timeout} must not be negative"):
            Partial(**wrong)
    with pytest.raises(ValueError, match="set pull on Partial itself"):
        PartialPull(Partial(push=2), pull=0.9)
    with pytest.raises(ValueError, match=r"use RampUp\(PartialPull"):
        PartialPull(RampUp(Async(), 10), pull=0.9)


@pytest.mark.parametrize("shards", [1, 3])
def test_every_version_goes_to_every_worker(shards: int) -> None:
    """And is paid for, also at every evaluation on the way."""
    task = tg.tasks.quadratic(60)
    cluster = tg.Gamma(workers=8)
    parts: dict[str, Any] = {"updates": 40, "shards": shards, "evaluation": 10}
    run = tg.simulate(task, tg.rules.sgd(0.001), Partial(push=3), cluster, **parts)
    whole = 8 * 60 * 4
    assert [r["pull_bytes"] for r in run.history.records] == [
        r["update"] * whole for r in run.history.records
    ]
    assert run.traffic is not None
    assert run.traffic.pull.sent == 40 * 8 * shards
    assert run.traffic.push.sent < run.traffic.pull.sent
