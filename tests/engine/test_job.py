"""What is derived from a job beforehand is what an execution of it counts on the way."""

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.clusters import Absence
from tardigrad.core.layout import Sharding
from tardigrad.engine.exact import Exact
from tardigrad.engine.fast.batches import just_in_time
from tardigrad.engine.fast.view_places import assign_slots
from tardigrad.engine.job import Job
from tardigrad.engine.versions import most_versions
from tardigrad.scheduling import Recorder, Schedule

GAMMA = tg.Gamma(workers=5, heterogeneous=True)
LEAVERS = tg.Gamma(workers=5, absences=(Absence(1, 300.0, 900.0), Absence(2, 500.0)))
SCHEDULES: dict[str, Schedule] = {
    "one shard": tg.schedule(tg.Async(), GAMMA, 60),
    "shards": tg.schedule(tg.Async(wait=False), GAMMA, 60, shards=3),
    "rounds": tg.schedule(tg.Sync(), GAMMA, 20, shards=2),
    "dropped": tg.schedule(tg.Backup(backups=2), GAMMA, 30, shards=2),
    "merged": tg.schedule(tg.Async(), GAMMA, 40, shards=2, link=tg.Every(push=3)),
    "leavers": tg.schedule(tg.Async(), LEAVERS, 60, shards=2),
    "nothing": Recorder(workers=2, shards=2).schedule(),
}


def applied_again() -> Schedule:
    """A link that did not send some gradients let the ones before be applied in their place."""
    link = tg.BandwidthAware(c_push=0.5, c_pull=0.5)
    task = tg.FunctionTask(torch.linspace(-1, 1, 12), lambda view, worker, step: 0.1 * view)
    made = tg.simulate(task, tg.rules.fasgd(0.1), cluster=GAMMA, updates=60, link=link).schedule
    assert len(np.unique(made.group_rows)) < len(made.group_rows)
    return made


SCHEDULES["again"] = applied_again()


def job_of(schedule: Schedule) -> Job:
    theta = torch.linspace(-1, 1, 12, dtype=torch.float64)
    task = tg.FunctionTask(theta, lambda view, worker, step: 0.1 * view)
    sharding = Sharding.divide(task.layout, schedule.shards)
    return Job(schedule, task, tg.rules.sgd(0.1), sharding)


@pytest.mark.parametrize("name", SCHEDULES)
def test_updates_and_samples_are_those_that_shards_count(name: str) -> None:
    execution = Exact(job_of(SCHEDULES[name]))
    while True:
        assert execution.updates == min(shard.version for shard in execution.shards)
        assert execution.samples == execution.shards[0].samples
        if execution.finished:
            break
        execution.advance()
    assert execution.updates == execution.total == SCHEDULES[name].updates


@pytest.mark.parametrize("name", SCHEDULES)
def test_versions_are_predicted_as_they_are_kept(name: str) -> None:
    """As many as slots are, were each gradient computed by itself; never fewer than are held."""
    schedule = SCHEDULES[name]
    most = most_versions(schedule)
    batches = just_in_time(schedule, 1)
    assert most == [assign_slots(schedule, batches, s).count for s in range(schedule.shards)]
    if name == "merged":
        return  # what is merged into others is held beside what is applied
    execution = Exact(job_of(schedule))
    held = [_held(execution, schedule.shards)]
    while not execution.finished:
        execution.advance()
        held.append(_held(execution, schedule.shards))
    assert (np.max(held, axis=0) <= most_versions(schedule, extended=True)).all()


def _held(execution: Exact, shards: int) -> list[int]:
    names = [name.split(".") for name in execution.tensors()]
    return [sum(n[0] == "versions" and int(n[1]) == s for n in names) for s in range(shards)]


def test_parts_are_slices_of_one_start() -> None:
    job = job_of(SCHEDULES["shards"])
    parts = job.parts()
    assert torch.equal(torch.cat([part.theta for part in parts]), job.task.start())
    assert job.shard_bytes == tuple(8 * len(part.theta) for part in parts)
    assert len({part.theta.untyped_storage().data_ptr() for part in parts}) == 1
