"""Synchronous groups: gradients at one view are one gradient of a larger batch.

Workers of a round start from the version that their gradients are applied to, so they differ in
their samples alone, and a rule makes of the group what it makes of its mean. Hence one gradient of
all their samples does, at a fraction of the time and memory. Only where that is known: of the rule
(`Rule.takes_means`), of the work (each clips its own), of the model and of the loss
(`ModuleTask.averages`). Nothing is tried: a loss with class weights gives the same for as long as
the rare class does not come.
"""

from dataclasses import replace

import numpy as np

from tardigrad.engine.job import Job
from tardigrad.scheduling import Schedule

MOST_BYTES = 2**26
"""Inputs of a group that are computed at once; more are better taken in turn."""


def first_of_each(job: Job) -> Schedule | None:
    """The schedule as if each group were its first gradient, where that one can stand for all of
    them with a batch of all their samples; else None."""
    schedule, task = job.schedule, job.module
    if not at_one_view(job) or not task.is_plain:
        return None
    inputs, each = task.data.train.inputs, int(schedule.group_start[1])
    if each * task.batch_size * inputs[0].numel() * inputs.element_size() > MOST_BYTES:
        return None
    if task.augments or task.stochastic or not task.averages:
        return None
    return by_its_first(schedule)


def at_one_view(job: Job) -> bool:
    """Whether each update applies a group of one size, whose gradients are computed at θ itself,
    and the rule makes of it what it makes of its mean."""
    schedule = job.schedule
    sizes = np.diff(schedule.group_start)
    if schedule.shards > 1 or not schedule.groups or len(np.unique(sizes)) > 1 or sizes[0] == 1:
        return False
    if schedule.delays.any() or len(schedule.member_after):
        return False
    if len(np.unique(schedule.group_rows)) < len(schedule.group_rows):
        return False
    return job.rule.takes_means and job.one_gradient.clip_norm is None


def by_its_first(schedule: Schedule) -> Schedule:
    """As if each group were its first gradient."""
    first = schedule.group_rows[schedule.group_start[:-1]]
    return replace(schedule, group_start=np.arange(schedule.groups + 1), group_rows=first)
