"""PSP with 8 workers and 10 shards, push 6, pull 90%: all shards advance together."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest

import tardigrad as tg
from tardigrad.clusters import Network, SlowShard, StepTimes, TimedCluster
from tardigrad.policies import Arrival, PushHalf
from tardigrad.policies.machine import ShardCommand

WORKERS, SHARDS = 8, 10
NETWORKS = {
    "at once": None,
    "delayed": Network(latency_s=5.0, jitter=1.0),
    "slow shard": Network(latency_s=5.0, jitter=1.0, slow_shards=(SlowShard(7, 4.0),)),
    "rare delays": Network(latency_s=1.0, jitter=1.0, rare_probability=0.01, rare_delay_s=60.0),
}


def spread(schedule: tg.Schedule) -> int:
    """The most that one shard was ever ahead of another."""
    versions = np.cumsum(schedule.group_shard[:, None] == np.arange(schedule.shards), axis=0)
    return int((versions.max(1) - versions.min(1)).max())


@pytest.mark.parametrize("heterogeneous", [False, True])
@pytest.mark.parametrize("network", NETWORKS)
def test_all_shards_advance_together(network: str, heterogeneous: bool) -> None:
    cluster = tg.Gamma(WORKERS, heterogeneous, network=NETWORKS[network])
    for seed in range(2):
        s = tg.schedule(tg.Partial(push=6, pull=0.9), cluster, 200, seed=seed, shards=SHARDS)
        assert np.bincount(s.group_shard).tolist() == [200] * SHARDS
        assert spread(s) <= 2
        per_shard = np.bincount(s.drop_shard, minlength=SHARDS)
        assert per_shard.max() - per_shard.min() <= 0.1 * per_shard.mean()


def test_a_block_that_comes_just_too_late_is_one_round_old() -> None:
    """Without delays shard 9 always answers last: it is read a round late, and not later."""
    s = tg.schedule(tg.Partial(push=6, pull=0.9), tg.Gamma(WORKERS), 200, seed=0, shards=SHARDS)
    late = s.stamp[:, None] - s.read
    assert late[:, :9].max() == 0
    assert set(late[:, 9]) == {0, 1}


class _JudgedByRead(tg.Partial):
    """The choice not made: a push counts by the version it read of the shard."""

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        half = super().push_half(workers)
        by_stamp = half.pushed

        def by_read(arrival: Arrival, now_s: float) -> list[ShardCommand]:
            return by_stamp(replace(arrival, stamp=arrival.read), now_s)

        half.pushed = by_read  # type: ignore[method-assign]
        return half


def test_judging_by_the_version_read_starves_a_shard() -> None:
    """Shard 9 has made next to nothing when the others are done."""
    s = tg.schedule(_JudgedByRead(push=6, pull=0.9), tg.Gamma(WORKERS), 100, shards=SHARDS)
    done_s = s.group_time_s[s.group_shard < 9].max()
    assert np.sum(s.group_time_s[s.group_shard == 9] <= done_s) < 10


@dataclass(frozen=True)
class _Stall(TimedCluster):
    """Everybody takes 1 s, except that worker 0's step 5 takes 10."""

    workers: int = WORKERS

    def realise(self, seed: int) -> StepTimes:
        return _StallTimes()


class _StallTimes(StepTimes):
    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> npt.NDArray[np.float64]:
        who, step = np.broadcast_arrays(workers, steps)
        return np.where((who == 0) & (step == 5), 10.0, 1.0)


def test_worker_that_fell_behind_catches_up() -> None:
    """As printed it counts its own rounds: all is dropped until the shards have waited for it."""
    dropped = {}
    for catch_up in (True, False):
        policy = tg.Partial(push=6, pull=0.9, push_timeout_s=0.5, catch_up=catch_up)
        dropped[catch_up] = tg.schedule(policy, _Stall(), 60, shards=SHARDS).dropped.tolist()
    # The gradient that stalled, and the next, which started in the middle of a round.
    assert dropped[True] == [2, *[0] * 7]
    assert dropped[False][0] > 5 * dropped[True][0]
    assert dropped[False][1:] == [0] * 7
