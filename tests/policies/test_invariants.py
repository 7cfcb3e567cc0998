"""What every schedule of a policy must satisfy, whatever the times: many seeds, no examples."""

from collections import Counter

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Absence, Network
from tardigrad.policies import POLICIES, Policy
from tardigrad.scheduling import traffic
from tardigrad.scheduling.validate import validate

WORKERS, SHARDS = 6, 4
EXAMPLES: list[Policy] = [
    tg.Async(),
    tg.Async(wait=False),
    tg.Sync(),
    tg.Backup(2),
    tg.Deadline(120.0),
    tg.Partial(push=4, pull=0.7),
    tg.Partial(push=4, pull=0.7, catch_up=False),
    tg.Partial(push=3, pull=0.5, push_timeout_s=20.0, pull_timeout_s=10.0),
    tg.SoftSync(2),
    tg.SoftSync(2, wait=False),
    tg.StaleSynchronous(0),
    tg.StaleSynchronous(2),
    tg.SoftSync(size=2),
    tg.SoftSync(size=9, wait=False),
    tg.BoundedDelay(4),
    tg.Ringmaster(5),
    tg.Rennala(4),
    tg.Rennala(9),
    tg.Ringmaster(5, stop=True),
    tg.Rennala(4, stop=True),
    tg.RampUp(tg.Ringmaster(5, stop=True), updates=20),
    tg.Malenia(4),
    tg.Malenia(13),
    tg.Malenia(8, stop=True),
    tg.Quorum(4),
    tg.Quorum(4, grace_s=20.0),
    tg.Quorum(3, grace_s=10.0, late="next"),
    tg.Quorum(4, weights="samples", grace_deviations=5.0),
    tg.PartialPull(tg.StaleSynchronous(1), pull=0.5),
    tg.PartialPull(tg.Backup(2), pull=0.7, pull_timeout_s=10.0),
    tg.PartialPull(tg.Sync(), pull=0.3),
    tg.PartialPull(tg.SoftSync(3, wait=False), pull=0.5),
    tg.PartialPull(tg.Quorum(3, grace_s=10.0, late="next"), pull=0.5),
    tg.PartialPull(tg.Rennala(4), pull=0.5),
    tg.PartialPull(tg.Malenia(8), pull=0.5),
    tg.DyLU(tg.Async()),
    tg.RampUp(tg.Async(), updates=20),
    tg.RampUp(tg.Sync(), updates=20),
    tg.RampUp(tg.Partial(push=4, pull=0.7), updates=20),
    tg.RampUp(tg.Quorum(4, grace_s=20.0), updates=20),
]
CLUSTERS = {
    "plain": tg.Gamma(workers=WORKERS),
    "heterogeneous": tg.Gamma(workers=WORKERS, heterogeneous=True),
    "delayed": tg.Gamma(workers=WORKERS, network=Network(latency_s=30.0, jitter=2.0)),
    "leaving": tg.Gamma(
        workers=WORKERS,
        network=Network(latency_s=5.0, jitter=1.0),
        absences=(
            Absence(0, 400.0),
            Absence(3, 700.0, 1900.0),
            Absence(4, 90.0, 130.0),
            Absence(4, 1000.0, 1001.0),
        ),
    ),
}


def made(policy: Policy, cluster: str, seed: int, shards: int = SHARDS) -> tg.Schedule:
    return tg.schedule(policy, CLUSTERS[cluster], 60, seed=seed, shards=shards, bulk=False)


def test_every_policy_has_an_example() -> None:
    assert {type(p) for p in EXAMPLES} == set(POLICIES.values())


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("policy", EXAMPLES, ids=str)
def test_every_push_is_applied_or_dropped_or_pending_once(policy: Policy, cluster: str) -> None:
    for seed in range(2):
        s = made(policy, cluster, seed)
        validate(s)
        assert s.updates == 60  # nobody hangs
        shard = np.repeat(s.group_shard, np.diff(s.group_start))
        fates = Counter(zip(s.group_rows.tolist(), shard.tolist(), strict=True))
        fates.update(zip(s.drop_row.tolist(), s.drop_shard.tolist(), strict=True))
        assert max(fates.values()) == 1
        computed = np.isfinite(s.end_s)
        assert all(computed[row] for row, _ in fates)
        # What has no fate was among the last: still travelling, or waiting for its group.
        recent = np.flatnonzero(s.end_s > s.end_time - 2000.0)
        lost = [
            r for r in np.flatnonzero(computed) if any((r, m) not in fates for m in range(SHARDS))
        ]
        assert set(lost) <= set(recent.tolist())
        for group in range(s.groups):
            rows = s.group(group)
            assert (np.diff(s.worker[rows]) >= 0).all()
        # Everybody who is there takes part all along, though slow ones may have all dropped.
        assert set(s.worker[computed].tolist()) == set(range(WORKERS))


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("policy", EXAMPLES, ids=str)
def test_pulls_are_counted_as_they_are_sent(policy: Policy, cluster: str) -> None:
    """`Every(1, 1)` lets all through and records each; without it only the odd ones are recorded.
    Not all pushes: those that are still on their way at the end have no fate."""
    if policy.interrupts:
        pytest.skip("no link may hold anything back")
    s = made(policy, cluster, 0)
    told = tg.schedule(policy, CLUSTERS[cluster], 60, shards=SHARDS, link=tg.Every())
    sizes = [8, 80, 800, 8000]
    assert traffic(s, sizes).pull == traffic(told, sizes).pull
    missing = traffic(told, sizes).push.sent - traffic(s, sizes).push.sent
    assert 0 <= missing < (SHARDS * WORKERS if cluster in ("delayed", "leaving") else 1)


@pytest.mark.parametrize("cluster", ["plain", "heterogeneous", "delayed"])
@pytest.mark.parametrize("seed", range(3))
def test_group_sizes_and_bounds(cluster: str, seed: int) -> None:
    sizes = {
        tg.Sync(): WORKERS,
        tg.Backup(2): WORKERS - 2,
        tg.SoftSync(2): WORKERS // 2,
        tg.SoftSync(4, wait=False): 1,
        tg.Async(): 1,
        tg.SoftSync(size=2): 2,
        tg.SoftSync(size=9, wait=False): 9,
        tg.Ringmaster(3): 1,
        tg.Rennala(4): 4,
        tg.Rennala(9): 9,
        tg.Quorum(4): 4,
    }
    for policy, size in sizes.items():
        assert set(np.diff(made(policy, cluster, seed).group_start)) == {size}, policy
    for policy in (
        tg.Sync(),
        tg.Backup(2),
        tg.Rennala(4),
        tg.Malenia(8),
        tg.Quorum(4),
        tg.Quorum(3, 20.0),
    ):
        assert made(policy, cluster, seed).delays.max() == 0, policy
    for bound in (0, 3, 8):
        assert made(tg.BoundedDelay(bound), cluster, seed).delays.max() <= bound
        assert made(tg.Ringmaster(bound + 1), cluster, seed).delays.max() <= bound
    partial = made(tg.Partial(push=4, pull=0.7), cluster, seed)
    assert set(np.diff(partial.group_start)) == set(partial.group_scale) == {4}
    longer = made(tg.Partial(push=4, pull=0.7, push_timeout_s=20.0), cluster, seed)
    counts = np.diff(longer.group_start)
    assert (counts == longer.group_scale).all()
    assert counts.min() >= 4
    assert counts.max() > 4 or cluster == "heterogeneous"


@pytest.mark.parametrize("bound", [0, 1, 3])
@pytest.mark.parametrize("cluster", ["plain", "heterogeneous", "delayed"])
def test_nobody_runs_farther_ahead_than_the_bound(bound: int, cluster: str) -> None:
    """At the start of a step, the slowest must have pushed all but `bound` of the steps before."""
    reached = 0
    for seed in range(3):
        s = made(tg.StaleSynchronous(bound), cluster, seed)
        for row in range(s.rows):
            done = np.isfinite(s.end_s) & (s.end_s <= s.start_s[row])
            slowest = min(int((done & (s.worker == w)).sum()) for w in range(WORKERS))
            assert s.step[row] - slowest <= bound
            reached = max(reached, int(s.step[row]) - slowest)
    assert reached == bound or cluster != "heterogeneous"  # and there somebody is at the bound


def test_quotas_follow_those_who_leave() -> None:
    gone = tg.Gamma(workers=4, absences=(Absence(1, 1000.0), Absence(2, 2000.0, 4000.0)))
    for policy, spare in ((tg.Sync(), 0), (tg.Backup(1), 1), (tg.Partial(), 0)):
        s = tg.schedule(policy, gone, updates=60, seed=0)
        size, at = np.diff(s.group_start), s.group_time_s
        assert set(size[at < 1000.0]) == {4 - spare}
        assert set(size[(at > 1300.0) & (at < 2000.0)]) == {3 - spare}
        assert set(size[(at > 2300.0) & (at < 4000.0)]) == {2 - spare}
        assert set(size[at > 4300.0]) == {3 - spare}


def test_run_stops_and_says_so_when_all_are_gone() -> None:
    gone = tg.Gamma(workers=2, absences=(Absence(0, 500.0), Absence(1, 700.0)))
    for policy in EXAMPLES:
        needing = ("Backup", "push=", "SoftSync(groups=3", "Quorum")
        if any(word in str(policy) for word in needing):
            continue  # more than two workers needed
        with pytest.raises(ValueError, match="all workers are gone"):
            tg.schedule(policy, gone, updates=1000)
