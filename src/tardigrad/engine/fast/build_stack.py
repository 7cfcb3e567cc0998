"""Stacks of runs on a GPU: which can be one, what that takes, and making it."""

from collections.abc import Sequence

from tardigrad.core.trees import named
from tardigrad.engine.fast.batches import look_ahead
from tardigrad.engine.fast.build_on_device import (
    check_batched,
    check_captured,
    check_staged,
    work_space,
)
from tardigrad.engine.fast.cuda_graphs import CudaGraphs
from tardigrad.engine.fast.stack import Stack
from tardigrad.engine.fast.stacking import Stacking
from tardigrad.engine.fast.view_places import in_stages
from tardigrad.engine.job import Job
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Task
from tardigrad.work import OneGradient


def stack_on_device(jobs: Sequence[Job]) -> Stack:
    """Captured and ready to run; what was to be checked is (`check_stackable`)."""
    graphs = CudaGraphs(jobs)
    graphs.prepare()
    return Stack(graphs)


def check_stackable(
    schedule: Schedule,
    tasks: Sequence[Task],
    rules: Sequence[Rule],
    work: OneGradient | None = None,
) -> list[Job]:
    """A job of each task and its rule, where they can go through the schedule as one; else
    Unsuited."""
    jobs = []
    for task, rule in zip(tasks, rules, strict=True):
        job = Job.on_one_shard(schedule, task, rule, work)
        check_captured(job)
        check_staged(job)
        check_batched(job)
        jobs.append(job)
    for job in jobs[1:]:
        what = jobs[0].module.differs(job.module)
        if what is not None:
            raise Unsuited(f"the tasks differ in {what}")
    return jobs


def stacked_bytes(jobs: Sequence[Job]) -> int:
    """What each replica of a stack takes, by the rule that keeps most: views and gradients in
    stages and a pool; own rows and state, twice (capturing keeps a copy); samples; work space."""
    schedule, task, ((theta, layout),) = jobs[0].schedule, jobs[0].module, jobs[0].parts()
    batches = look_ahead(schedule)
    places = in_stages(schedule, batches)
    kept = max(
        len(named(job.rule.start(theta, layout), ""))
        + schedule.workers * len(named(job.rule.start_own(theta, layout), ""))
        for job in jobs
    )
    vectors = (2 * places.count + 2 * (1 + kept)) * Stacking(layout.size, len(jobs)).stride
    samples = len(batches.rows) * task.batch_size * 8
    return (vectors + work_space(task, batches.largest)) * theta.element_size() + samples
