"""The fast executor on the CPU for one gradient per update at one shard, all planned beforehand.

A synchronous group counts as one gradient of all its samples (`groups.first_of_each`).
Where every view, gradient and sample will lie is known from the schedule (`Waiting`), so a batch is
two calls: the compiled gradients, and the window kernel that applies them and writes each view
where a later batch will read it.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.core.trees import named, not_finite
from tardigrad.engine.exact import check_same_shapes
from tardigrad.engine.fast.gradients import compiled_gradients, no_gradients, padded
from tardigrad.engine.fast.lookahead import Batches
from tardigrad.engine.fast.shard import copied, rows_of
from tardigrad.engine.fast.tables import scalar_table
from tardigrad.engine.fast.waiting import Waiting
from tardigrad.engine.kernels import CppKernel, Program
from tardigrad.engine.run import Diverged, History, Run
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule, traffic
from tardigrad.tasks import ModuleTask

DRAWN = 1024
"""Gradients whose samples are drawn at a time."""


class Stream:
    """Executes a schedule batch by batch.

    `position` counts updates done. Batches are a function of the schedule and the chunk, and a
    window's size does not change its bits, so neither evaluations nor checkpoints do.
    """

    name = "fast"

    def __init__(
        self,
        schedule: Schedule,
        task: ModuleTask,
        rule: Rule,
        batches: Batches,
        waiting: Waiting,
        sizes: Sequence[int],
        program: Program,
    ) -> None:
        self.schedule, self.task, self.rule = schedule, task, rule
        self.history = History()
        self.position = 0
        self.buffers: tuple[Tensor, ...] = ()
        self._batches, self._window = batches, batches.window
        self._blocks, self._batch = waiting.blocks, 0
        theta = task.start()
        self.theta = theta.clone()
        self.shard_bytes = (theta.numel() * theta.element_size(),)
        self._state = copied(rule.start(theta, task.layout))
        self._states = [t for t in named(self._state, "").values() if t.numel()]
        own = named(rule.start_own(theta, task.layout), "")
        self._owns = [rows_of(start, schedule.workers) for start in own.values()]
        # Rows to spare, because a call may compute more gradients than are needed.
        self._views = theta.new_zeros(waiting.count + max(sizes), padded(len(theta)))
        self._gathered = theta.new_zeros(max(sizes), padded(len(theta)))
        self._grads = no_gradients(task, rule, max(sizes))
        self._first = schedule.group_rows[schedule.group_start[:-1]]
        self._each = len(schedule.group_rows) // len(self._first)
        self._read = schedule.read[self._first, 0]
        self._rows = torch.from_numpy(waiting.rows)
        for place in np.unique(waiting.rows[self._read == 0, 1]).tolist():
            self._views[place, : len(theta)] = theta
        scalars = scalar_table(schedule, rule, task.batch_size, task.epoch_size)
        self._coefficients = program.scalars.table(scalars).to(theta.dtype).contiguous()
        self._kernel = CppKernel(program, theta.dtype)
        self._sizes = sorted(sizes)
        self._losses: list[float] = []
        self._drawn = range(0)
        self._indices = torch.empty(0)

    @property
    def updates(self) -> int:
        return self.position

    @property
    def total(self) -> int:
        return self.schedule.updates

    @property
    def finished(self) -> bool:
        return self.position == self.total

    @property
    def samples(self) -> int:
        return self.position * self._each * self.task.batch_size

    @property
    def params(self) -> Tensor:
        return self.theta.clone()

    @property
    def average(self) -> Tensor | None:
        return self._state.average[0].clone() if self._state.average else None

    def advance_to(self, until: int) -> None:
        """Go on to `until` updates, or to the end of the batch."""
        begin, end = (int(x) for x in self._window[self._batch : self._batch + 2])
        if self.position == begin:
            self._losses = self._compute(begin, end)
        stop = min(until, end)
        self._kernel.run(
            self.theta,
            self._states,
            self._owns,
            self._grads,
            self._views,
            self._rows,
            self._coefficients,
            self.position,
            stop,
        )
        self.history.loss += self._losses[self.position - begin : stop - begin]
        if not_finite(self.theta) is not None:
            self._look_for_gradient(begin, stop)
        self.position = stop
        self._batch += stop == end

    def _compute(self, begin: int, end: int) -> list[float]:
        """The gradients of updates `begin` to `end` − 1; their losses."""
        count = self._sizes[bisect_left(self._sizes, end - begin)]
        chosen, train = self._samples(begin, end, count), self.task.data.train
        shape = (count, self._each * self.task.batch_size)
        inputs = train.inputs.index_select(0, chosen).view(*shape, *train.inputs.shape[1:])
        targets = train.targets.index_select(0, chosen).view(*shape, *train.targets.shape[1:])
        function = compiled_gradients(self.task, self.rule, count, self._each)
        with torch.no_grad():
            views = self._views_of(begin, end)[:count]
            self._grads, found, _ = function(views, inputs, targets)
        losses: list[float] = found[: end - begin].tolist()
        if not math.isfinite(sum(losses)):
            self._refuse(losses, begin)
        return losses

    def _views_of(self, begin: int, end: int) -> Tensor:
        """In consecutive rows, with any numbers after them."""
        if self._blocks is not None:
            return self._views[int(self._blocks[self._batch]) :]
        where = self._rows[begin:end, 1]
        torch.index_select(self._views, 0, where, out=self._gathered[: end - begin])
        return self._gathered

    def _samples(self, begin: int, end: int, count: int) -> Tensor:
        """Sample indices of updates `begin` to `end` − 1, and any after them up to `count`; drawn
        many at a time, since few are as dear as many."""
        if not self._drawn.start <= begin <= end <= self._drawn.stop:
            stop = max(end, min(begin + max(1, DRAWN // self._each), self.total))
            rows = self.schedule.group_rows[begin * self._each : stop * self._each]
            steps = self.schedule.step[rows]
            drawn = self.task.indices_of(self.schedule.worker[rows], steps, rows)
            drawn = drawn.view(stop - begin, -1)
            self._indices = torch.cat([drawn, drawn[:1].expand(max(self._sizes), -1)])
            self._drawn = range(begin, stop)
        low = begin - self._drawn.start
        return self._indices[low : low + count].reshape(-1)

    def _refuse(self, losses: list[float], begin: int) -> None:
        for update, loss in enumerate(losses, begin):
            if not math.isfinite(loss):
                worker = int(self.schedule.worker[self._first[update]])
                raise Diverged(update, worker, loss)

    def _look_for_gradient(self, begin: int, stop: int) -> None:
        """Name the gradient that made θ NaN or infinite, if there is one among this batch's."""
        for update in range(self.position, stop):
            for piece in self._grads:
                wrong = not_finite(piece[update - begin])
                if wrong is not None:
                    worker = int(self.schedule.worker[self._first[update]])
                    raise Diverged(update, worker, wrong, "a gradient")

    # -- saving

    def run(self) -> Run:
        counted = traffic(self.schedule, self.shard_bytes)
        return Run(self.params, self.history, self.schedule, (), self.average, counted)

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name: rows only of workers that came, views only
        where they are still needed, gradients only inside a window."""
        size = len(self.theta)
        came = np.unique(self._rows[: self.position, 2].numpy()).tolist()
        out = {"theta": self.theta} | named(self._state, "state")
        out |= {f"own.{i}.{w}": own[w] for i, own in enumerate(self._owns) for w in came}
        for update in self._alive():
            out[f"view.{self._read[update]}"] = self._views[int(self._rows[update, 1]), :size]
        begin, end = self._window[self._batch : self._batch + 2] if not self.finished else (0, 0)
        if begin < self.position:
            out |= {f"grads.{i}": piece[: end - begin] for i, piece in enumerate(self._grads)}
        return out

    def _alive(self) -> list[int]:
        """Updates to come whose views are there."""
        later = np.nonzero(self._read[self.position :] <= self.position)[0]
        return (later + self.position).tolist()

    @cached_property
    def _digest(self) -> str:
        return self.schedule.digest

    def facts(self) -> dict[str, Any]:
        return {
            "schedule": self._digest,
            **self._batches.facts(),
            "position": self.position,
            "batch": self._batch,
            "losses": self._losses,
            "shards": [{"version": self.position}],
            "records": self.history.records,
            "loss": self.history.loss,
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from what `tensors` and `facts` saved; another run's are refused."""
        require(
            facts["schedule"] == self._digest,
            "the checkpoint belongs to a run of another schedule: resume with the schedule it was "
            "made with, or start in a new folder",
        )
        self._batches.check_same(facts, form="losses")
        before = self.position, self._batch
        self.position, self._batch = facts["position"], facts["batch"]
        try:
            check_same_shapes(self.tensors(), tensors)
        except ValueError:
            self.position, self._batch = before
            raise
        self._losses = facts["losses"]
        self.history = History(facts["records"], facts["loss"])
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        for update in self._alive():  # several may read one version
            place = int(self._rows[update, 1])
            self._views[place, : len(self.theta)] = tensors[f"view.{self._read[update]}"]
