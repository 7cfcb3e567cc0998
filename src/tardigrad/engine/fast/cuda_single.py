"""Large models on a GPU: one captured graph per gradient and its update.

Where one gradient keeps the GPU busy, batching gains nothing; what is left to save is the host. The
graph fetches the view by an index on the device, runs the model forward and backward, applies the
update in the window kernel and folds BatchNorm's statistics.
"""

import torch
from torch import Tensor

from tardigrad.core.arrays import Floats
from tardigrad.core.trees import named
from tardigrad.engine.fast.batches import just_in_time
from tardigrad.engine.fast.coefficients import coefficients, scalar_table
from tardigrad.engine.fast.in_place import InPlace
from tardigrad.engine.fast.on_device import OnDevice
from tardigrad.engine.fast.view_places import in_slots
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import trace
from tardigrad.engine.kernels.triton import TritonKernel
from tardigrad.engine.kernels.update_table import VIEW
from tardigrad.engine.unsuited import Unsuited
from tardigrad.tasks import ModuleTask, Turn
from tardigrad.tasks.randomness import watched


class CudaSingle(OnDevice):
    """One graph replay for each gradient and its update."""

    task: ModuleTask

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        schedule, task, ((theta, layout),) = job.schedule, job.module, job.parts()
        device, dtype = task.device, task.dtype
        places = in_slots(schedule, just_in_time(schedule, 1))
        program = trace(job.rule, dtype)
        self._kernel = TritonKernel(program, dtype)
        self._numbers = InPlace.at_start(job.rule, theta, layout, schedule.workers)
        self.shards = [self._numbers]
        self._views = theta.repeat(places.count, 1)
        self._grad = torch.zeros_like(theta)
        self._rows = places.table.on(device)
        self._windows = torch.arange(schedule.groups + 1, device=device)
        self._coefficients = coefficients(program, scalar_table(job), theta)
        self._losses = torch.zeros(schedule.groups, device=device, dtype=dtype)
        self._counter = torch.zeros(1, device=device, dtype=torch.int64)
        # Augmented batches are made on the host's word, so they come into the graph from outside.
        self._outside = task.augments
        rows = schedule.group_rows
        self._samples = task.indices_of(schedule.worker[rows], schedule.step[rows], rows)
        first = self._turn(0)
        self._x, self._y = (t.clone() for t in task.batch(first))
        self._graph: torch.cuda.CUDAGraph | None = None

    def _turn(self, update: int) -> Turn:
        row = int(self.schedule.group_rows[update])
        return Turn(int(self.schedule.worker[row]), int(self.schedule.step[row]), row)

    def _update(self) -> None:
        """One gradient and its update, as captured."""
        task, count, numbers = self.task, self._counter, self._numbers
        if not self._outside:
            chosen = self._samples.index_select(0, count)[0]
            train = task.data.train
            torch.index_select(train.inputs, 0, chosen, out=self._x)
            torch.index_select(train.targets, 0, chosen, out=self._y)
        row = self._rows.index_select(0, count)[0]
        view = self._views.index_select(0, row[VIEW : VIEW + 1])[0]
        loss, pieces = task.backward(view, self._x, self._y)
        torch.cat([piece.reshape(-1) for piece in pieces], out=self._grad)
        with torch.no_grad():
            if self.rule.clip_norm is not None:
                self._grad.copy_(self.rule.prepare(self._grad))
            self._losses.index_copy_(0, count, loss.detach().reshape(1).to(self._losses.dtype))
            self._kernel.run(
                numbers.theta,
                numbers.states,
                numbers.owns,
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

    def _replay(self, until: int) -> Floats:
        if self._graph is None:
            self.prepare()
        assert self._graph is not None
        for update in range(self.position, until):
            if self._outside:
                x, y = self.task.batch(self._turn(update))
                self._x.copy_(x)
                self._y.copy_(y)
            self._graph.replay()
        losses: Floats = self._losses[self.position : until].double().cpu().numpy()
        return losses

    def tensors(self) -> dict[str, Tensor]:
        numbers = self._numbers
        return {
            "theta": numbers.theta,
            "views": self._views,
            "losses": self._losses,
            "counter": self._counter,
            **named(self.buffers, "buffers"),
            **named(numbers.state, "state"),
            **{f"own.{i}": own for i, own in enumerate(numbers.owns)},
        }
