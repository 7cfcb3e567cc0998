"""Limits that hold exactly: policies that become one another at their neutral values."""

from math import inf

import pytest

import tardigrad as tg
from tardigrad.clusters import Absence, Cluster, Network
from tardigrad.policies import Policy
from tests.policies.schedule_differences import differing

CLUSTERS = [
    tg.Gamma(workers=6),
    tg.Gamma(workers=6, heterogeneous=True),
    tg.Dispatcher(workers=6),
    tg.Gamma(workers=1),
]
IDS = ["gamma", "heterogeneous", "dispatcher", "alone"]


def made(policy: Policy, cluster: Cluster, shards: int, updates: int = 60) -> tg.Schedule:
    return tg.schedule(policy, cluster, updates, seed=3, shards=shards, bulk=False)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=IDS)
def test_limits_are_the_same_schedules(cluster: Cluster, shards: int) -> None:
    n = cluster.workers
    synchronous, asynchronous = (made(p, cluster, shards) for p in (tg.Sync(), tg.Async()))
    policy: Policy
    quorums = tg.Quorum(n), tg.Quorum(n, late="next"), tg.Quorum(n, weights="samples")
    for policy in (tg.Backup(0), tg.SoftSync(1), *quorums, tg.PartialPull(tg.Sync())):
        assert differing(made(policy, cluster, shards), synchronous) == [], policy
    unbounded = tg.StaleSynchronous(None), tg.StaleSynchronous(inf), tg.BoundedDelay(10**9)
    at_once = tg.SoftSync(n), tg.SoftSync(n, wait=False), tg.SoftSync(size=1), tg.Ringmaster(10**9)
    assert differing(made(tg.SoftSync(size=n), cluster, shards), synchronous) == []
    for policy in (*unbounded, *at_once):
        assert differing(made(policy, cluster, shards), asynchronous) == [], policy
        assert differing(made(tg.PartialPull(policy), cluster, shards), asynchronous) == [], policy
    for push in (None, n):
        partial = made(tg.Partial(push), cluster, shards)
        assert differing(partial, synchronous, ignore=["group_scale"]) == []
        assert set(partial.group_scale) == {float(n)}  # linear scaling


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("cluster", CLUSTERS[:3], ids=IDS[:3])
def test_newer_policies_are_older_ones_at_their_limits(cluster: Cluster, shards: int) -> None:
    pairs: list[tuple[Policy, Policy]] = [
        (tg.Ringmaster(4), tg.BoundedDelay(3)),
        (tg.Rennala(1), tg.BoundedDelay(0)),
        (tg.Quorum(4), tg.Backup(2)),
        (tg.SoftSync(size=2), tg.SoftSync(3)),
        (tg.SoftSync(size=2, wait=False), tg.SoftSync(3, wait=False)),
    ]
    if cluster != CLUSTERS[2]:  # which has no clock
        pairs += [(tg.Quorum(1, 1e9), tg.Sync()), (tg.Quorum(3, 1e9, "next"), tg.Sync())]
        pairs += [(tg.Quorum(6, grace_deviations=0.0), tg.Sync())]
        pairs += [(tg.Quorum(2, grace_deviations=1e9), tg.Sync())]
    for mine, theirs in pairs:
        one, other = (made(p, cluster, shards) for p in (mine, theirs))
        assert differing(one, other, ignore=["reasons"]) == [], (mine, theirs)
        assert (len(one.drop_row) > 0) == (len(other.drop_row) > 0)


@pytest.mark.parametrize("shards", [1, 3])
def test_deadline_never_reached_is_sync(shards: int) -> None:
    late, synchronous = (made(p, CLUSTERS[0], shards) for p in (tg.Deadline(1e9), tg.Sync()))
    assert differing(late, synchronous) == []


NETWORK = Network(latency_s=20.0, jitter=2.0)
LEAVING = (Absence(1, 300.0), Absence(2, 500.0, 1500.0), Absence(5, 1000.0, 1100.0))


@pytest.mark.parametrize("network", [None, NETWORK], ids=["at once", "delayed"])
@pytest.mark.parametrize("absences", [(), LEAVING], ids=["staying", "leaving"])
@pytest.mark.parametrize("shards", [1, 3])
def test_limits_hold_with_message_delays_and_absences(
    shards: int, absences: tuple[Absence, ...], network: Network | None
) -> None:
    cluster = tg.Gamma(workers=6, network=network, absences=absences)
    synchronous, asynchronous = (made(p, cluster, shards) for p in (tg.Sync(), tg.Async()))
    assert differing(made(tg.Backup(0), cluster, shards), synchronous) == []
    never = made(tg.Deadline(1e9), cluster, shards)
    assert differing(never, synchronous, ignore=["reasons"]) == []
    for policy in (tg.StaleSynchronous(None), tg.SoftSync(6), tg.BoundedDelay(10**9)):
        assert differing(made(policy, cluster, shards), asynchronous) == [], policy


@pytest.mark.parametrize("cluster", CLUSTERS, ids=IDS)
def test_stale_synchronous_zero_is_lock_step(cluster: Cluster) -> None:
    """Round r consists of everybody's step r, each applied by itself, and starts at version N r."""
    n = cluster.workers
    lock_step = made(tg.StaleSynchronous(0), cluster, shards=1, updates=10 * n)
    rows = lock_step.group_rows.reshape(10, n)
    for r in range(10):
        assert sorted(lock_step.worker[rows[r]]) == list(range(n))
        assert set(lock_step.step[rows[r]]) == {r}
        assert set(lock_step.read[rows[r], 0]) == {r * n}
    synchronous = made(tg.Sync(), cluster, shards=1, updates=10)
    assert (
        differing(
            lock_step,
            synchronous,
            ignore=[f"group_{x}" for x in ("shard", "time_s", "scale", "start", "rows")]
            + ["read", "stamp", "reply_shard", "reply_extra", "reply_after"],
        )
        == []
    )  # the same gradients start and end at the same moments
