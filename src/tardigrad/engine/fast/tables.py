"""What a run's updates need beside tensors, as tables made once from the schedule."""

import itertools

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.engine.fast.lookahead import Batches
from tardigrad.engine.fast.waiting import why_not_one_by_one
from tardigrad.rules import Rule
from tardigrad.rules.rates import Progress
from tardigrad.scheduling import Schedule


def scalar_table(
    schedule: Schedule, rule: Rule, batch_size: int, epoch_size: int, shard: int = 0
) -> Tensor:
    """Per update of a shard: staleness (of the group's first gradient), then `Rule.scalars`."""
    mine = schedule.group_shard == shard
    first = schedule.group_rows[schedule.group_start[:-1][mine]]
    staleness = np.arange(len(first)) - schedule.read[first, shard] + 1
    applied = np.diff(schedule.group_start)[mine]
    before = (np.cumsum(applied) - applied) * batch_size
    scales = schedule.group_scale[mine]
    values = []
    rows = zip(staleness.tolist(), before.tolist(), scales.tolist(), strict=True)
    for update, (late, samples, scale) in enumerate(rows):
        s = rule.scalars(Progress(update, samples, epoch_size), scale)
        values.append((late, s.lr, s.lr_max, *s.correction, *s.optimizer))
    return torch.tensor(values, dtype=torch.float64)


class RowPool:
    """Rows of a pool, handed out lowest first, so that the pool stays as small as it can."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self.size = 0

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self.size += 1
        return self.size - 1

    def give_back(self, slot: int) -> None:
        self._free.append(slot)


class Placement:
    """Where each gradient and each view lies while it is needed, for the staged buffers.

    A buffer is two *stages* and a *pool*. Batch b computes its gradients at the views in stage
    b mod 2, in order; the updates of its window write the views of batch b + 1 straight into the
    other stage. What the window did not apply is moved into the pool before the stage is needed
    again. So nothing is gathered before a batch and nothing scattered after it. Both stages begin
    with the first version, which the pieces of the first batch read (`in_stages`).

    rows: (updates, 4) the window kernel's table: gradient, view, own row, where to write.
    moves: per batch, (from, to) of what goes into the pool.
    """

    def __init__(self, schedule: Schedule, batches: Batches) -> None:
        self.stage = int(np.diff(batches.start).max())
        base = 2 * self.stage
        where = np.full(schedule.rows, -1, dtype=np.int64)
        applied_at = np.full(schedule.rows, schedule.groups, dtype=np.int64)
        applied_at[schedule.group_rows] = np.arange(schedule.groups)
        self.rows: Ints = np.full((schedule.groups, 4), -1, dtype=np.int64)
        self.rows[:, 2] = schedule.worker[schedule.group_rows]
        self.moves: list[Ints] = []
        pool = RowPool()
        leaving: list[list[int]] = [[] for _ in range(batches.count + 1)]
        window_of = np.searchsorted(batches.window, np.arange(schedule.groups), side="right") - 1
        for b in range(batches.count):
            stage = (b % 2) * self.stage
            rows = batches.of(b)
            begin, end = int(batches.window[b]), int(batches.window[b + 1])
            where[rows] = stage + np.arange(len(rows))
            applied = schedule.group_rows[begin:end]
            self.rows[begin:end, 0] = self.rows[begin:end, 1] = where[applied]
            if b + 1 < batches.count:
                following = batches.of(b + 1)
                read = schedule.read[following, 0]
                other = ((b + 1) % 2) * self.stage
                self.rows[read[read > 0] - 1, 3] = other + np.nonzero(read > 0)[0]
            for slot in leaving[b]:
                pool.give_back(slot)
            late = rows[applied_at[rows] >= end]
            slots = np.array([pool.take() for _ in late], dtype=np.int64)
            for row, slot in zip(late.tolist(), slots.tolist(), strict=True):
                # Free once the window that applies it is over.
                leaving[int(window_of[applied_at[row]]) + 1].append(slot)
            self.moves.append(np.stack([where[late], base + slots], axis=1))
            where[late] = base + slots
        self.size = base + pool.size


def fits_stages(schedule: Schedule) -> str | None:
    """None where `Placement` can serve the schedule, else why not."""
    why = why_not_one_by_one(schedule)
    read = schedule.read[schedule.group_rows, 0]
    if why is None and len(np.unique(read[read > 0])) != (read > 0).sum():
        why = "several gradients read one version"
    if why is None and len(schedule.drop_row):
        why = "gradients were dropped"
    return why


def comes_twice(schedule: Schedule, batches: Batches) -> str | None:
    """None where no window applies two gradients of one worker, else why that matters.

    The GPU's kernel reads a worker's own rows ahead of their use.
    """
    workers = schedule.worker[schedule.group_rows]
    for begin, end in itertools.pairwise(batches.window.tolist()):
        if len(np.unique(workers[begin:end])) < end - begin:
            return "a worker comes twice in one window, and the rule keeps numbers per worker"
    return None
