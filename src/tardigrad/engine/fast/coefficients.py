"""What a run's updates need beside tensors: their scalars, all evaluated before the run."""

import numpy as np
import torch
from torch import Tensor

from tardigrad.engine.job import Job
from tardigrad.engine.kernels import Program
from tardigrad.rules.rates import Progress


def scalar_table(job: Job, shard: int = 0) -> Tensor:
    """Per update of a shard: staleness (of the group's first gradient), then `Rule.scalars`."""
    schedule, task = job.schedule, job.task
    mine = schedule.group_shard == shard
    first = schedule.group_rows[schedule.group_start[:-1][mine]]
    staleness = np.arange(len(first)) - schedule.read[first, shard] + 1
    applied = np.diff(schedule.group_start)[mine]
    before = (np.cumsum(applied) - applied) * task.batch_size
    scales = schedule.group_scale[mine]
    values = []
    rows = zip(staleness.tolist(), before.tolist(), scales.tolist(), strict=True)
    for update, (late, samples, scale) in enumerate(rows):
        s = job.rule.scalars(Progress(update, samples, task.epoch_size), scale)
        values.append((late, s.lr, s.lr_max, *s.correction, *s.optimizer))
    return torch.tensor(values, dtype=torch.float64)


def coefficients(program: Program, scalars: Tensor, like: Tensor) -> Tensor:
    """What the window kernel reads of each update, (updates, coefficients), where `like` is."""
    table = program.scalars.table(scalars)
    return table.to(like.dtype).to(like.device).contiguous()
