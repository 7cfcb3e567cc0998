"""The fast engine on a CPU for one gradient per update at one shard, all planned beforehand.

A synchronous group counts as one gradient of all its samples (`groups.first_of_each`).
Where every view, gradient and sample will lie is known from the schedule (`ViewPlaces`), so a batch
is two calls: the compiled gradients, and the window kernel that applies them and writes each view
where a later batch will read it.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.allocation import large_pages
from tardigrad.core.trees import named, not_finite
from tardigrad.engine.execution import Execution, check_same_shapes
from tardigrad.engine.fast.batches import Batches
from tardigrad.engine.fast.coefficients import coefficients, scalar_table
from tardigrad.engine.fast.gradients import compiled_gradients, padded
from tardigrad.engine.fast.in_place import InPlace
from tardigrad.engine.fast.view_places import ViewPlaces
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import CppKernel, Program
from tardigrad.engine.kernels.pieces import first_gradients, plain, shape_of
from tardigrad.engine.kernels.update_table import VIEW
from tardigrad.engine.run import Diverged
from tardigrad.tasks import ModuleTask

DRAWN = 1024
"""Gradients whose samples are drawn at a time."""


class CpuStream(Execution):
    """Executes a schedule batch by batch.

    Batches are a function of the schedule and the chunk, and a window's size does not change its
    bits, so neither evaluations nor checkpoints do.
    """

    name = "fast"
    recorded = ("records", "loss")
    task: ModuleTask

    def __init__(
        self,
        job: Job,
        batches: Batches,
        places: ViewPlaces,
        sizes: Sequence[int],
        program: Program,
        prepared_bytes: int = 0,
    ) -> None:
        super().__init__(job)
        schedule, ((theta, layout),) = job.schedule, job.parts()
        self._batches, self._window = batches, batches.window
        self.chunk = batches.chunk
        self._blocks, self._batch = places.blocks, 0
        self._numbers = InPlace.at_start(job.rule, theta, layout, schedule.workers)
        self.shards = [self._numbers]
        # Rows to spare, because a call may compute more gradients than are needed.
        views = theta.new_empty(places.count + max(sizes), padded(len(theta)))
        self._views = large_pages(views).zero_()
        self._gathered = theta.new_zeros(max(sizes), padded(len(theta)))
        self._first = schedule.group_rows[schedule.group_start[:-1]]
        self._each = len(schedule.group_rows) // len(self._first)
        self._read = schedule.read[self._first, 0]
        self._table = places.table
        rows = places.table.on(theta.device)
        self._read_at = rows[:, VIEW]
        for place in np.unique(self._table.view[self._read == 0]).tolist():
            self._views[place, : len(theta)] = theta
        self._sizes = sorted(sizes)
        self._functions = {
            size: compiled_gradients(self.task, job.one_gradient, size, self._each)
            for size in sizes
        }
        self._grads = self._functions[max(sizes)].no_gradients()
        numbers = self._numbers
        self._windows = CppKernel(program, theta.dtype).bound(
            numbers.theta,
            numbers.states,
            numbers.owns,
            [shape_of(piece) for piece in self._grads],
            self._views,
            rows,
            coefficients(program, scalar_table(job), theta),
        )
        self._inputs, self._targets = self.task.data.train.inputs, self.task.data.train.targets
        prepared = None
        if schedule.rows * self.task.batch_size >= len(self._inputs):  # else few are ever seen
            prepared = self._functions[self._sizes[0]].prepared(self._inputs, prepared_bytes)
        self.prepares = prepared is not None
        """Whether inputs are kept as the first product wants them."""
        if prepared is not None:
            self._inputs = prepared
        self._losses: list[float] = []
        self._drawn = range(0)
        self._indices = torch.empty(0)

    def advance_to(self, until: int) -> None:
        """Go on to `until` updates, or to the end of the batch."""
        begin, end = self._window[self._batch : self._batch + 2].tolist()
        if self.position == begin:
            self._losses = self._compute(begin, end)
        stop = min(until, end)
        finite = self._windows.run(self._grads, self.position, stop)
        self.history.loss += self._losses[self.position - begin : stop - begin]
        if not finite:
            self._look_for_gradient(begin, stop)
        self.position = stop
        self._batch += stop == end

    def _compute(self, begin: int, end: int) -> list[float]:
        """The gradients of updates `begin` to `end` − 1; their losses."""
        count = self._sizes[bisect_left(self._sizes, end - begin)]
        chosen = self._samples(begin, end, count)
        inputs, targets = (
            whole.index_select(0, chosen).view(count, -1, *whole.shape[1:])
            for whole in (self._inputs, self._targets)
        )
        function = self._functions[count]
        with torch.no_grad():
            views = self._views_of(begin, end)[:count]
            compute = function.of_prepared if self.prepares else function
            self._grads, found, _ = compute(views, inputs, targets)
        losses: list[float] = found[: end - begin].tolist()
        if not math.isfinite(sum(losses)):
            self._refuse(losses, begin)
        return losses

    def _views_of(self, begin: int, end: int) -> Tensor:
        """In consecutive rows, with any numbers after them."""
        if self._blocks is not None:
            return self._views[int(self._blocks[self._batch]) :]
        out = self._gathered[: end - begin]
        torch.index_select(self._views, 0, self._read_at[begin:end], out=out)
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
                wrong = not_finite(plain(piece)[update - begin])
                if wrong is not None:
                    worker = int(self.schedule.worker[self._first[update]])
                    raise Diverged(update, worker, wrong, "a gradient")

    # -- saving

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name: rows only of workers that came, views only
        where they are still needed, gradients only inside a window."""
        numbers, size = self._numbers, len(self._numbers.theta)
        came = np.unique(self._table.own[: self.position]).tolist()
        out = {"theta": numbers.theta} | named(numbers.state, "state")
        out |= {f"own.{i}.{w}": own[w] for i, own in enumerate(numbers.owns) for w in came}
        for update in self._alive():
            out[f"view.{self._read[update]}"] = self._views[self._table.view[update], :size]
        begin, end = self._window[self._batch : self._batch + 2] if not self.finished else (0, 0)
        if begin < self.position:
            for i, piece in enumerate(self._grads):
                out |= named(first_gradients(piece, end - begin), f"grads.{i}")
        return out

    def _alive(self) -> list[int]:
        """Updates to come whose views are there."""
        later = np.nonzero(self._read[self.position :] <= self.position)[0]
        return (later + self.position).tolist()

    def _facts(self) -> dict[str, Any]:
        return {**self._batches.facts(), "batch": self._batch, "losses": self._losses}

    def _check_same(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self._batches.check_same(facts, form="losses")
        before = self.position, self._batch
        self.position, self._batch = facts["position"], facts["batch"]
        try:
            check_same_shapes(self.tensors(), tensors)
        finally:
            self.position, self._batch = before

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self._batch, self._losses = facts["batch"], facts["losses"]
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        size = len(self._numbers.theta)
        for update in self._alive():  # several may read one version
            self._views[self._table.view[update], :size] = tensors[f"view.{self._read[update]}"]
