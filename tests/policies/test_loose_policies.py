"""Async, SoftSync, StaleSynchronous and BoundedDelay, event by event."""

from math import inf

import pytest

import tardigrad as tg
from tardigrad import Async, BoundedDelay, SoftSync, StaleSynchronous
from tardigrad.policies import Apply, PullHalf, Release, SetTimer, Start
from tardigrad.policies.machine import WorkerCommand
from tests.policies.hand_fed_shard import Shard, dropped, releases
from tests.policies.schedule_differences import differing


def test_async_answers_after_or_before_its_own_push() -> None:
    assert Shard(Async(), 2).push(1) == [Apply((0,)), Release(1)]
    assert Shard(Async(wait=False), 2).push(1) == [Release(1), Apply((0,))]


def test_async_does_not_answer_the_gone() -> None:
    shard = Shard(Async(), 2)
    shard.leave(1)
    assert shard.push(1) == [Apply((0,))]
    assert shard.join(1) == releases(1)


def test_soft_sync_groups_whatever_the_age() -> None:
    shard = Shard(SoftSync(groups=2), 5)
    assert shard.push(3) == []
    assert shard.push(0) == [Apply((1, 0)), *releases(0, 3)]
    assert shard.push(4, stamp=0) == []
    assert shard.push(0, stamp=1) == [Apply((3, 2)), *releases(0, 4)]


def test_soft_sync_without_waiting_may_take_a_worker_twice() -> None:
    shard = Shard(SoftSync(groups=1, wait=False), 3)
    assert shard.push(1) == releases(1)
    assert shard.push(0) == releases(0)
    assert shard.push(1) == [Apply((1, 0, 2)), Release(1)]


def test_soft_sync_group_shrinks_with_the_workers() -> None:
    shard = Shard(SoftSync(groups=2), 6)
    shard.push(0)
    shard.push(1)
    assert shard.leave(5) == [Apply((0, 1)), *releases(0, 1)]
    shard.push(2)
    assert shard.leave(2) == []  # its gradient stays, but two who are there are waited for
    assert shard.push(0) == []
    assert shard.push(3) == [Apply((3, 2, 4)), *releases(0, 3)]
    for worker in (1, 3, 4):
        shard.leave(worker)
    assert shard.push(0) == [Apply((5,)), Release(0)]
    assert shard.join(4) == releases(4)


def test_stale_synchronous_holds_the_fast_until_the_slowest_comes() -> None:
    shard = Shard(StaleSynchronous(1), 3)
    assert shard.push(0) == [Apply((0,)), Release(0)]
    assert shard.push(0) == [Apply((1,))]  # two ahead
    assert shard.push(1) == [Apply((2,)), Release(1)]
    assert shard.push(2) == [Apply((3,)), *releases(0, 2)]


def test_stale_synchronous_zero_is_lock_step() -> None:
    shard = Shard(StaleSynchronous(0), 3)
    assert shard.push(2) == [Apply((0,))]
    assert shard.push(0) == [Apply((1,))]
    assert shard.push(1) == [Apply((2,)), *releases(0, 1, 2)]


def test_stale_synchronous_does_not_wait_for_the_gone() -> None:
    shard = Shard(StaleSynchronous(0), 3)
    shard.push(0)
    shard.push(1)
    assert shard.leave(2) == releases(0, 1)
    shard.push(0)
    assert shard.leave(0) == []
    assert shard.push(1) == [Apply((3,)), Release(1)]


def test_stale_synchronous_joiner_is_level_with_the_slowest() -> None:
    shard = Shard(StaleSynchronous(1), 2)
    shard.leave(1)
    for _ in range(5):
        assert Release(0) in shard.push(0)
    assert shard.join(1) == releases(1)
    assert Release(0) in shard.push(0)  # clock 6, the joiner counts as 5
    assert Release(0) not in shard.push(0)
    assert shard.push(1) == [Apply((7,)), *releases(0, 1)]


def test_stale_synchronous_answers_every_held_push() -> None:
    """Under partial pulling a worker that this shard holds may push again."""
    shard = Shard(StaleSynchronous(0), 2)
    shard.push(0)
    shard.push(0)
    assert shard.push(1) == [Apply((2,)), *releases(0, 1)]
    assert shard.push(1) == [Apply((3,)), *releases(0, 1)]


@pytest.mark.parametrize("bound", [None, inf])
def test_stale_synchronous_without_bound_never_holds(bound: float | None) -> None:
    shard = Shard(StaleSynchronous(bound), 2)
    for row in range(50):
        assert shard.push(0) == [Apply((row,)), Release(0)]


def test_bounded_delay_drops_what_is_too_late() -> None:
    shard = Shard(BoundedDelay(1), 3)
    assert shard.push(0) == [Apply((0,)), Release(0)]
    assert shard.push(1) == [Apply((1,)), Release(1)]
    assert shard.push(2) == dropped(2, "delay over bound", 2)
    assert shard.push(2, stamp=9, read=1) == [Apply((3,)), Release(2)]


def test_bad_arguments() -> None:
    for groups in (0, -1, 1.5):
        with pytest.raises(ValueError, match="groups must be a whole number of at least 1"):
            SoftSync(groups)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="use 1 to 4 groups"):
        SoftSync(5).check(4, 1)
    for bound in (-1, 0.5, float("nan"), -inf, True):
        with pytest.raises(ValueError, match="bound must be a whole number of at least 0"):
            StaleSynchronous(bound)
    with pytest.raises(ValueError, match="max_delay must be a whole number of at least 0"):
        BoundedDelay(-1)


class Waits(PullHalf):
    """All that a pull half must say: a worker starts when its one shard has answered."""

    def begin(self) -> list[WorkerCommand]:
        return [Start(0)]

    def pulled(self, shard: int, version: int, now_s: float) -> list[WorkerCommand]:
        self.have[shard] = version
        return [Start(version)]

    def finished(self, now_s: float) -> list[WorkerCommand]:
        return []

    def rejoined(self) -> None:
        return


class Own(Async):
    def pull_half(self, shards: int) -> PullHalf:
        return Waits(shards)


def test_a_pull_half_of_ones_own_need_say_no_more_than_it_must() -> None:
    cluster = tg.Gamma(workers=4)
    own, ours = (tg.schedule(p, cluster, updates=60, bulk=False) for p in (Own(), Async()))
    assert differing(own, ours) == []


class Alarmed(Own):
    """Sets a timer, and does not say that it needs a clock."""

    def pull_half(self, shards: int) -> PullHalf:
        class Half(Waits):
            def finished(self, now_s: float) -> list[WorkerCommand]:
                return [SetTimer(1.0, 0)]

        return Half(shards)


def test_a_timer_without_a_clock_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a dispatcher has no clock.*use a cluster with times"):
        tg.schedule(Alarmed(), tg.Dispatcher(workers=2), updates=5)
    made = tg.schedule(Alarmed(), tg.Gamma(workers=2), updates=5, bulk=False)
    assert made.updates == 5  # a timer that nobody heeds
