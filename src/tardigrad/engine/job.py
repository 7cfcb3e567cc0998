"""What is to be executed, as one value."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.core.layout import Layout, Sharding
from tardigrad.links import Codec, Identity, encoded_bytes
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.tasks import ModuleTask, Task, Turn
from tardigrad.work import AnyWork, OneGradient


class ShardPart(NamedTuple):
    """A shard's parameters at the start, and their layout."""

    theta: Tensor
    layout: Layout


@dataclass(frozen=True, eq=False)
class Job:
    """A schedule, and what it is executed with; what follows from them is derived once.

    `measures`: what to record of every gradient applied at shard 0 (`execute`).
    """

    schedule: Schedule
    task: Task
    rule: Rule
    sharding: Sharding
    measures: Sequence[str] = ()
    work: AnyWork = field(default_factory=OneGradient)
    codec: Codec = field(default_factory=Identity)

    @classmethod
    def on_one_shard(
        cls, schedule: Schedule, task: Task, rule: Rule, work: AnyWork | None = None
    ) -> "Job":
        return cls(schedule, task, rule, Sharding.divide(task.layout), work=work or OneGradient())

    @property
    def module(self) -> ModuleTask:
        """The task, which is known to be a module."""
        assert isinstance(self.task, ModuleTask)
        return self.task

    @property
    def one_gradient(self) -> OneGradient:
        """The work, which is known to be this one."""
        assert isinstance(self.work, OneGradient)
        return self.work

    @cached_property
    def keeps_state(self) -> bool:
        """Whether workers keep something for themselves from row to row."""
        return self.codec.error_feedback or self.work.keeps_state(self.task)

    def batches(self, row: int) -> int:
        """That the row takes."""
        steps = self.schedule.steps
        return int(steps[row]) if len(steps) else self.work.batches

    def turn(self, worker: int, step: int, row: int) -> Turn:
        """The first batch of a row."""
        if not len(self.schedule.steps):  # of which not all may be known yet
            return Turn(worker, step * self.work.batches, row * self.work.batches)
        first, own = self._first_batch
        return Turn(worker, int(own[row]), int(first[row]))

    @cached_property
    def _first_batch(self) -> tuple[Ints, Ints]:
        return self.schedule.first_batch(self.work.batches)

    def parts(self) -> list[ShardPart]:
        """Of each shard; all of one copy of the start."""
        theta = self.task.start()
        return [
            ShardPart(theta[self.sharding.slice(s)], layout)
            for s, layout in enumerate(self.sharding.layouts)
        ]

    @cached_property
    def shard_bytes(self) -> tuple[int, ...]:
        """What θ takes on each shard."""
        each = self.task.start().element_size()
        return tuple((b - a) * each for a, b in itertools.pairwise(self.sharding.bounds))

    @cached_property
    def push_bytes(self) -> tuple[int, ...]:
        """What each shard's slice of a gradient takes as it travels."""
        each, bounds = self.task.start().element_size(), self.sharding.bounds
        return tuple(encoded_bytes(self.codec, b - a, each) for a, b in itertools.pairwise(bounds))

    @cached_property
    def updates_at(self) -> Ints:
        """After each number of groups, the updates that every shard has made."""
        schedule = self.schedule
        made = [np.nonzero(schedule.group_shard == s)[0] for s in range(schedule.shards)]
        least = min(len(mine) for mine in made)
        # The k-th update is made by all once the last of the shards' k-th groups is applied.
        complete = np.max([mine[:least] + 1 for mine in made], axis=0)
        return np.searchsorted(complete, np.arange(schedule.groups + 1), side="right")

    @cached_property
    def merged(self) -> dict[tuple[int, int], list[int]]:
        """`Schedule.merged`: the rows that a link averaged into each push."""
        return self.schedule.merged

    @cached_property
    def samples_at(self) -> Ints:
        """After each number of groups, the samples in the gradients that shard 0 has applied."""
        schedule = self.schedule
        batches = np.full(len(schedule.group_rows), self.work.batches)
        if len(schedule.steps):
            batches = schedule.steps[schedule.group_rows]
        if self.merged:
            went = [len(self.merged.get((row, 0), ())) for row in schedule.group_rows.tolist()]
            batches += np.array(went, dtype=np.int64) * self.work.batches
        counted = np.concatenate([[0], np.cumsum(batches)])[schedule.group_start]
        sizes = np.where(schedule.group_shard == 0, np.diff(counted), 0)
        return np.concatenate([[0], np.cumsum(sizes)]) * self.task.batch_size
