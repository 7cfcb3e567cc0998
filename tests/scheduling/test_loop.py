"""The event loop itself: the same schedule at a run and step by step."""

import gc
from itertools import pairwise

import pytest

import tardigrad as tg
from tardigrad.policies import Policy
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.make import control
from tardigrad.scheduling.recorder import Recorder

POLICIES = (
    tg.Async(),
    tg.Async(wait=False),
    tg.Sync(),
    tg.Backup(2),
    tg.SoftSync(3, wait=False),
    tg.SoftSync(3),
    tg.StaleSynchronous(1),
    tg.BoundedDelay(3),
    tg.Partial(push=4, pull=0.6),
    tg.PartialPull(tg.Async(), 0.6),
    tg.RampUp(tg.Backup(1), updates=12),
    tg.Deadline(0.8),
)
CLUSTER = tg.Exponential(
    workers=7, absences=(tg.Absence(2, 3.0, 5.0), tg.Absence(4, 0.5), tg.Absence(5, 6.0, 6.1))
)


def made(policy: Policy, shards: int, pausing: bool) -> tuple[Schedule, list[int]]:
    """The schedule, and how many groups each step made (0 at a run)."""
    recorder = Recorder(CLUSTER.workers, shards)
    loop = control(policy, CLUSTER, 40, 3, recorder, tg.Full(), None)
    groups = [0]
    if not pausing:
        loop.run()
    else:
        groups += [len(recorder.group_shard) for _ in loop.steps()]
    return recorder.schedule(), [b - a for a, b in pairwise(groups)]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_run_makes_what_steps_make(policy: Policy, shards: int) -> None:
    """At a run pushes do not go through the inbox, where they would be next."""
    at_a_run, _ = made(policy, shards, pausing=False)
    by_steps, each = made(policy, shards, pausing=True)
    assert at_a_run == by_steps
    assert set(each) == {0, 1}, "an update is a step of its own"


def test_the_collector_goes_on_after_a_schedule_that_cannot_end() -> None:
    cluster = tg.Exponential(workers=1, absences=(tg.Absence(0, 3.0),))
    with pytest.raises(ValueError, match="all workers are gone"):
        tg.schedule(tg.Async(), cluster, updates=1000)
    assert gc.isenabled()
    gc.disable()
    try:
        tg.schedule(tg.Async(), tg.Exponential(workers=2), updates=3, bulk=False)
        assert not gc.isenabled(), "whoever has turned it off wants it off"
    finally:
        gc.enable()
