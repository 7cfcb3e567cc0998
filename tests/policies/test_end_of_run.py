"""The end of a run, when some shards have made their last version and others have not."""

import pytest

import tardigrad as tg
from tardigrad.clusters import Constant, Network, Outage
from tardigrad.links import Gate, Link
from tardigrad.policies import (
    Partial,
    PartialPull,
    Policy,
    RampUp,
    Request,
    StaleSynchronous,
    Start,
)
from tardigrad.scheduling import validate

UPDATES = 20


def lagging(returns_s: float | None) -> Constant:
    """Shard 1 stops; what two workers pushed meanwhile then goes into one update, because the
    third, a hundred times slower, could still have a gradient for it."""
    outage = Outage(shard=1, stops_s=3.5, returns_s=returns_s)
    return Constant(workers=3, step_s=(1.0, 1.0, 100.0), network=Network(outages=(outage,)))


@pytest.mark.parametrize("catch_up", [True, False])
@pytest.mark.parametrize("returns_s", [15.0, 40.0])
def test_a_shard_that_lags_makes_its_updates_after_the_others(
    returns_s: float, catch_up: bool
) -> None:
    policy = Partial(push=2, push_timeout_s=0.1, pull=0.5, catch_up=catch_up)
    made = tg.schedule(policy, lagging(returns_s), UPDATES, shards=2)
    validate(made)
    assert made.updates == UPDATES
    first, second = (made.group_time_s[made.group_shard == shard].max() for shard in (0, 1))
    assert first < second


@pytest.mark.parametrize(
    "policy",
    [
        Partial(push=2, push_timeout_s=0.1, pull=0.5),
        PartialPull(tg.Async(), pull=0.5),
        PartialPull(tg.Sync(), pull=0.5),
        PartialPull(StaleSynchronous(bound=1), pull=0.5),
    ],
    ids=repr,
)
def test_workers_do_not_go_on_for_ever_for_a_shard_that_has_stopped(policy: Policy) -> None:
    with pytest.raises(ValueError, match=r"shards \[1\] have stopped for good.*versions \[20, "):
        tg.schedule(policy, lagging(None), UPDATES, shards=2)


def test_beyond_the_last_round_a_worker_asks_those_that_go_on() -> None:
    half = Partial(pull=0.5).pull_half(3)
    half.begin()
    for version in range(1, 6):
        half.finished(0.0)
        half.pulled(0, version, 0.0)
        if version == 5:
            half.ended(0)
            half.ended(1)
        assert half.pulled(1, version, 0.0) == [Start(version)]
    assert half.finished(0.0) == [Request(2, 1)], "5 was the last version: nobody makes a sixth"
    assert half.pulled(2, 1, 0.0) == [Start(5)]
    assert half.have == [5, 5, 1]


def test_who_replaces_a_worker_asks_for_what_the_dead_one_had_heard() -> None:
    """Shard 1 has one gradient and waits for two: nobody would hear from it."""
    half = RampUp(Partial(push=2, pull=0.5), 1).pull_half(2)
    assert half.replaced() == [Request(0, 1), Request(1, 1)]
    assert half.pulled(0, 9, 0.0) == []
    assert half.pulled(1, 4, 0.0) == [Start(9)]
    assert half.have == [9, 4]


class _OneShardHearsMore(Link):
    """To shard 0 every gradient crosses, to shard 1 every fourth."""

    withholds_pushes = True

    def realise(self, seed: int, shard_bytes: object) -> Gate:
        return _Gate()


class _Gate(Gate):
    def __init__(self) -> None:
        self.pushes = 0

    def push(self, worker: int, shard: int, heard: object) -> bool:
        self.pushes += shard
        return shard == 0 or self.pushes % 4 == 0

    def pull(self, worker: int, shard: int, heard: object) -> bool:
        return True


def test_whom_a_shard_held_back_at_its_last_version_goes_on_for_the_others() -> None:
    """Under bound 0 worker 0 always waits for worker 1, also where worker 0 made the last one."""
    made = tg.schedule(
        StaleSynchronous(bound=0), Constant(workers=2), updates=21, shards=2,
        link=_OneShardHearsMore(),
    )  # fmt: skip
    assert made.updates == 21
