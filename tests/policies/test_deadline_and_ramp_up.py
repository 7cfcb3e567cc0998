"""Deadline and RampUp, event by event."""

import pytest

import tardigrad as tg
from tardigrad import Async, Backup, Deadline, Partial, RampUp, Sync
from tardigrad.policies import Apply, Release, Request, SetTimer, Start
from tests.policies.hand_fed_shard import Shard, dropped, releases


def test_deadline_goes_on_with_what_has_come() -> None:
    shard = Shard(Deadline(10.0), 3)
    assert shard.push(2, at_s=4.0) == [SetTimer(6.0, 0)]
    assert shard.push(0, at_s=5.0) == []
    assert shard.timer(0, at_s=10.0) == [Apply((1, 0)), *releases(0, 2)]
    assert shard.push(1, at_s=11.0) == dropped(2, "too late", 1)
    # The next version began at 10.
    assert shard.push(0, stamp=1, at_s=13.0) == [SetTimer(7.0, 1)]
    shard.push(1, stamp=1, at_s=14.0)
    assert shard.push(2, stamp=1, at_s=15.0) == [Apply((3, 4, 5)), *releases(0, 1, 2)]
    assert shard.timer(1, at_s=20.0) == []


def test_deadline_that_nobody_met_takes_the_first() -> None:
    shard = Shard(Deadline(10.0), 2)
    assert shard.push(1, at_s=12.0) == [SetTimer(0.0, 0)]
    assert shard.timer(0, at_s=12.0) == [Apply((0,)), Release(1)]


def test_deadline_does_not_wait_for_the_gone() -> None:
    shard = Shard(Deadline(10.0), 2)
    shard.push(1, at_s=1.0)
    assert shard.leave(0, at_s=2.0) == [Apply((0,)), Release(1)]
    assert shard.push(1, stamp=1, at_s=3.0) == [Apply((1,)), Release(1)]


def test_deadline_needs_a_clock_and_a_time() -> None:
    with pytest.raises(ValueError, match="timeout_s must not be negative"):
        Deadline(-1.0)
    with pytest.raises(ValueError, match="Deadline sets timers"):
        tg.schedule(Deadline(1.0), tg.Dispatcher(workers=2), updates=2)
    with pytest.raises(ValueError, match="RampUp sets timers"):
        tg.schedule(RampUp(Deadline(1.0), 5), tg.Dispatcher(workers=2), updates=2)


def test_ramp_up_lets_workers_in_one_by_one() -> None:
    shard = Shard(RampUp(Async(), updates=4), 3)
    assert [shard.half.on_request(w, 0, 0.0) for w in range(3)] == [releases(0), [], []]
    assert shard.push(0) == [Apply((0,)), Release(0)]
    assert shard.push(0) == [Apply((1,)), Release(0), Release(1)]  # version 2 of 4: half of them
    assert shard.push(0) == [Apply((2,)), Release(0)]
    assert shard.push(1) == [Apply((3,)), Release(1), Release(2)]
    assert shard.push(2) == [Apply((4,)), Release(2)]
    assert shard.half.version == 5


def test_ramp_up_answers_who_asks_late_to_begin_only_once() -> None:
    """Its turn may come before it has asked: on a cluster processes start when they start."""
    shard = Shard(RampUp(Async(), updates=1), 2)
    assert shard.half.on_request(0, 0, 0.0) == releases(0)
    assert shard.push(0) == [Apply((0,)), Release(0), Release(1)]
    assert shard.half.on_request(1, 0, 0.0) == []
    assert shard.half.on_request(1, 1, 0.0) == releases(1)


def test_ramp_up_grows_the_quotas_of_its_policy() -> None:
    shard = Shard(RampUp(Sync(), updates=2), 3)
    assert shard.push(0) == [Apply((0,)), Release(0), Release(1)]
    assert shard.push(1, stamp=1) == []
    assert shard.push(0, stamp=1) == [Apply((2, 1)), *releases(0, 1), Release(2)]
    assert shard.push(0, stamp=2) == []
    assert shard.push(1, stamp=2) == []
    assert shard.push(2, stamp=2) == [Apply((3, 4, 5)), *releases(0, 1, 2)]


def test_ramp_up_replaces_who_leaves_and_queues_who_joins() -> None:
    shard = Shard(RampUp(Async(), updates=10), 3)
    assert shard.leave(0) == releases(1)
    assert shard.join(0) == []
    assert shard.leave(2) == []
    assert shard.leave(1) == releases(0)
    assert shard.push(0) == [Apply((0,)), Release(0)]
    for _ in range(9):
        shard.push(0)
    assert shard.join(2) == releases(2)  # the ramp is over


def test_shards_of_a_ramp_up_let_in_the_same_workers_whenever_they_hear_of_a_leave() -> None:
    """Else the one waits for a worker that waits for the other."""
    early, late = (Shard(RampUp(Sync(), updates=4), 3) for _ in range(2))
    assert early.leave(2) == []
    for shard in (early, late):
        assert shard.push(0) == [Apply((0,)), Release(0)]
        assert shard.push(0, stamp=1) == [Apply((1,)), Release(0), Release(1)]
    assert late.leave(2) == []


def test_ramp_up_passes_timers_on() -> None:
    shard = Shard(RampUp(Partial(push=1, push_timeout_s=2.0), updates=1), 2)
    assert shard.push(0) == [Apply((0,)), Release(0), Release(1)]
    assert shard.push(0, stamp=1) == [SetTimer(2.0, 1)]
    assert shard.timer(1) == [Apply((1,)), *releases(0, 1)]
    assert shard.half.version == 2


def test_ramp_up_worker_asks_every_shard_first() -> None:
    half = RampUp(Sync(), updates=5).pull_half(2)
    assert half.begin() == [Request(0, 0), Request(1, 0)]
    assert half.pulled(0, 3, 0.0) == []
    assert half.pulled(1, 2, 0.0) == [Request(1, 3)]
    assert half.pulled(1, 3, 0.0) == [Start(3)]
    assert half.have == [3, 3]
    assert half.finished(1.0) == []


def test_ramp_up_passes_a_workers_timers_on() -> None:
    half = RampUp(Partial(pull=0.5, pull_timeout_s=3.0), updates=1).pull_half(2)
    half.begin()
    half.pulled(0, 0, 0.0)
    assert half.pulled(1, 0, 0.0) == [Start(0)]
    half.finished(1.0)
    (timer,) = half.pulled(0, 1, 2.0)
    assert isinstance(timer, SetTimer)
    assert timer.seconds == 3.0
    assert half.timer(timer.token, 5.0) == [Start(1)]


def test_ramp_up_in_flight_grows_linearly() -> None:
    """On a cluster: how many different workers compute at each version."""
    made = tg.schedule(RampUp(Async(), updates=90), tg.Gamma(workers=10), updates=200, seed=1)
    first = [int(made.read[made.worker == w][0, 0]) for w in range(10)]
    assert first == [10 * w for w in range(10)]
    assert made.delays.max() > 5


def test_ramp_up_checks_its_policy() -> None:
    with pytest.raises(ValueError, match="updates must be a whole number of at least 1"):
        RampUp(Async(), updates=0)
    with pytest.raises(ValueError, match="backups = 4 leaves nobody"):
        RampUp(Backup(4), updates=5).check(4, 1)
