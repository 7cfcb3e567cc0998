"""Large models on a GPU: one captured graph per gradient and its update.

Where one gradient keeps the GPU busy, batching gains nothing; what is left to save is the host. The
graph fetches the view by an index on the device, runs the model forward and backward, applies the
update in the window kernel and folds BatchNorm's statistics.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.trees import named
from tardigrad.engine.fast.cuda import on_device, staged_coefficients
from tardigrad.engine.fast.lookahead import just_in_time
from tardigrad.engine.fast.slots import assign_slots
from tardigrad.engine.fast.suited import Unsuited
from tardigrad.engine.kernels import trace
from tardigrad.engine.kernels.triton import TritonKernel
from tardigrad.engine.run import Diverged, History, Run
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.tasks import ModuleTask, Turn
from tardigrad.tasks.randomness import watched


class CudaSingle:
    """Executes a one-shard schedule of single gradients on one GPU, one graph replay each.

    The interface is the exact executor's.
    """

    def __init__(self, schedule: Schedule, task: ModuleTask, rule: Rule) -> None:
        self.schedule, self.task, self.rule = schedule, task, rule
        self.history = History()
        self.position = 0
        device, dtype = task.device, task.dtype
        slots = assign_slots(schedule, just_in_time(schedule, 1), 0)
        program = trace(rule, dtype)
        self._kernel = TritonKernel(program, dtype)
        theta = task.start()
        self.theta = theta.clone()
        self.buffers = task.start_buffers()
        self._state = rule.start(theta, task.layout)
        own = rule.start_own(theta, task.layout)
        self._owns = [t.repeat(schedule.workers, 1) for t in named(own, "").values()]
        self._views = theta.repeat(slots.count, 1)
        self._grad = torch.zeros_like(theta)
        rows = schedule.group_rows
        table = np.zeros((schedule.groups, 4), dtype=np.int64)
        table[:, 1] = slots.of[schedule.read[rows, 0]]
        table[:, 2] = schedule.worker[rows]
        table[:, 3] = slots.of[1:]
        self._rows = on_device(table, device)
        self._windows = torch.arange(schedule.groups + 1, device=device)
        self._coefficients = staged_coefficients(schedule, task, rule, program)
        self._losses = torch.zeros(schedule.groups, device=device, dtype=dtype)
        self._counter = torch.zeros(1, device=device, dtype=torch.int64)
        # Augmented batches are made on the host's word, so they come into the graph from outside.
        self._outside = task.augments
        self._samples = task.indices_of(schedule.worker[rows], schedule.step[rows], rows)
        first = self._turn(0)
        self._x, self._y = (t.clone() for t in task.batch(first))
        self._graph: torch.cuda.CUDAGraph | None = None

    def _turn(self, update: int) -> Turn:
        row = int(self.schedule.group_rows[update])
        return Turn(int(self.schedule.worker[row]), int(self.schedule.step[row]), row)

    def _update(self) -> None:
        """One gradient and its update, as captured."""
        task, count = self.task, self._counter
        if not self._outside:
            chosen = self._samples.index_select(0, count)[0]
            train = task.data.train
            torch.index_select(train.inputs, 0, chosen, out=self._x)
            torch.index_select(train.targets, 0, chosen, out=self._y)
        row = self._rows.index_select(0, count)[0]
        view = self._views.index_select(0, row[1:2])[0]
        loss, pieces = task.backward(view, self._x, self._y)
        torch.cat([piece.reshape(-1) for piece in pieces], out=self._grad)
        with torch.no_grad():
            if self.rule.clip_norm is not None:
                self._grad.copy_(self.rule.prepare(self._grad))
            self._losses.index_copy_(0, count, loss.detach().reshape(1).to(self._losses.dtype))
            self._kernel.run(
                self.theta,
                [t for t in named(self._state, "").values() if t.numel()],
                self._owns,
                self._grad[None],
                self._views,
                self._rows,
                self._coefficients,
                self._windows,
                count,
            )
            if self.buffers:
                task.fold_(self.buffers)
            count.add_(1)

    def prepare(self) -> None:
        """Capture the graph, leaving everything as it was."""
        saved = {name: t.clone() for name, t in self.tensors().items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), watched(self.task.device) as moved:
            for _ in range(3):
                self._counter.zero_()
                self._update()
            whose = moved()
        if whose is not None:  # a graph would draw what it drew while it was captured
            raise Unsuited(f"the model or its loss draws from {whose} generator")
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._update()
        for name, tensor in self.tensors().items():
            tensor.copy_(saved[name])

    @property
    def updates(self) -> int:
        return self.position

    @property
    def samples(self) -> int:
        return self.position * self.task.batch_size

    @property
    def params(self) -> Tensor:
        return self.theta.clone()

    @property
    def average(self) -> Tensor | None:
        return self._state.average[0].clone() if self._state.average else None

    def advance(self, until: int) -> None:
        """Apply updates up to `until`."""
        if self._graph is None:
            self.prepare()
        assert self._graph is not None
        before = self.position
        for update in range(before, until):
            if self._outside:
                x, y = self.task.batch(self._turn(update))
                self._x.copy_(x)
                self._y.copy_(y)
            self._graph.replay()
        self.position = until
        losses = self._losses[before:until].double().cpu().numpy()
        bad = np.nonzero(~np.isfinite(losses))[0]
        if len(bad):
            at = before + int(bad[0])
            raise Diverged(at, self._turn(at).worker, float(losses[bad[0]]))
        self.history.loss += losses.tolist()

    def run(self) -> Run:
        # Copied, because replays go on writing into the graph's own.
        buffers = tuple(buffer.clone() for buffer in self.buffers)
        return Run(self.params, self.history, self.schedule, buffers, self.average)

    def tensors(self) -> dict[str, Tensor]:
        return {
            "theta": self.theta,
            "views": self._views,
            "losses": self._losses,
            "counter": self._counter,
            **named(self.buffers, "buffers"),
            **named(self._state, "state"),
            **{f"own.{i}": own for i, own in enumerate(self._owns)},
        }

    def facts(self) -> dict[str, Any]:
        return {
            "position": self.position,
            "records": self.history.records,
            "loss": self.history.loss,
            "gap": self.history.gap,
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.position = facts["position"]
        self.history = History(facts["records"], facts["loss"], facts["gap"])
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
