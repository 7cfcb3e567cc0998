"""A schedule's beginning is the schedule of a shorter run."""

import pytest

import tardigrad as tg
from tardigrad.policies import Policy
from tardigrad.scheduling.prefix import executed_digest, prefix
from tardigrad.scheduling.validate import validate

POLICIES = [
    tg.Async(),
    tg.Async(wait=False),
    tg.Sync(),
    tg.Backup(1),
    tg.SoftSync(2),
    tg.BoundedDelay(3),
    tg.Ringmaster(3, stop=True),
    tg.Rennala(3, stop=True),
    tg.StaleSynchronous(2),
    tg.Deadline(2.0),
]
CLUSTERS = {
    "gamma": tg.Gamma(workers=4, heterogeneous=True),
    "network": tg.Gamma(workers=4, network=tg.Network(latency_s=0.3, jitter=0.1)),
    "absences": tg.Gamma(workers=4, absences=(tg.Absence(1, 5.0, 20.0),)),
}


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("shards", [1, 2])
def test_it_is_what_a_run_of_fewer_updates_makes(policy: Policy, cluster: str, shards: int) -> None:
    for shorter, longer in ((17, 40), (50, 90)):
        short, long = (
            tg.schedule(policy, CLUSTERS[cluster], updates, 0, shards)
            for updates in (shorter, longer)
        )
        assert prefix(long, short.groups) == short
        assert executed_digest(long, short.groups) == executed_digest(short, short.groups)
        assert executed_digest(long, short.groups - 1) != executed_digest(short, short.groups)


def test_where_times_tie_it_is_valid_and_executed_alike() -> None:
    for policy in POLICIES:
        short, long = (tg.schedule(policy, tg.Constant(workers=4), n) for n in (17, 40))
        validate(prefix(long, short.groups))
        assert executed_digest(long, short.groups) == executed_digest(short, short.groups)


def test_other_step_times_are_another_beginning() -> None:
    one, other = (tg.schedule(cluster=tg.Gamma(workers=4), updates=40, seed=s) for s in (0, 1))
    assert executed_digest(one, 20) != executed_digest(other, 20)


def test_nothing_and_all_of_it() -> None:
    made = tg.schedule(tg.Backup(1), tg.Gamma(workers=4), updates=20)
    assert prefix(made, made.groups) is made
    validate(prefix(made, 0))
    assert prefix(made, 0).updates == 0
