"""Models that gain nothing from batching, on a GPU: ready gradients as branches of one graph.

One replay computes the gradients of the next few updates beside each other, each on a stream of its
own, and applies them in order. The graph reads from tables on the device which views and samples
they are of; the host only asks for the next replay, by its number of branches.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.arrays import Floats
from tardigrad.core.trees import named
from tardigrad.engine.fast.branch_gradients import BranchGradient
from tardigrad.engine.fast.branches import SIZES, BranchPlan
from tardigrad.engine.fast.coefficients import coefficients, scalar_table
from tardigrad.engine.fast.cuda_graphs import side_by_side
from tardigrad.engine.fast.gradients import padded
from tardigrad.engine.fast.in_place import InPlace
from tardigrad.engine.fast.on_device import OnDevice
from tardigrad.engine.fast.running_statistics import RunningStatistics
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import trace
from tardigrad.engine.kernels.triton import TritonKernel
from tardigrad.engine.kernels.update_table import GRAD, VIEW
from tardigrad.tasks import ModuleTask, Turn


class GraphKey(NamedTuple):
    """Of a captured graph: its branches, whether they end an update, and where the view of its only
    branch lies; None: gathered."""

    branches: int
    last: bool
    slot: int | None = None


@cache
def branch_streams(device: torch.device) -> list[torch.cuda.Stream]:
    """Always the same: what a branch allocates, later graphs can use only on its stream. Graphs are
    captured on the first.

    Products have a work space for each stream, which stays for good; it is made here, so that it
    holds no room of what branches allocate.
    """
    streams = [torch.cuda.Stream(device) for _ in range(SIZES[-1])]  # type: ignore[no-untyped-call]
    small = torch.ones(16, 16, device=device)
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            small @ small
    torch.cuda.synchronize(device)
    return streams


class CudaBranches(OnDevice):
    """A graph for each number of branches up to `most`; of rounds, those that they need."""

    task: ModuleTask
    predicted_bytes = 0
    """What it would take of the GPU's memory, as told before."""

    def __init__(self, job: Job, plan: BranchPlan, gradient: BranchGradient, most: int) -> None:
        super().__init__(job)
        schedule, task, ((theta, layout),) = job.schedule, job.module, job.parts()
        device, dtype = task.device, task.dtype
        self._plan, self._gradient, self.most = plan, gradient, most
        program = trace(job.rule, dtype)
        self._kernel = TritonKernel(program, dtype)
        self._numbers = InPlace.at_start(job.rule, theta, layout, schedule.workers)
        self.shards = [self._numbers]
        self._views = theta.new_zeros(plan.places.count, padded(len(theta)))
        self._start_views()
        # Of a branch: its gradient, its loss, its batch's statistics.
        self._grads = theta.new_zeros(most, padded(len(theta)))
        self._loss = theta.new_zeros(most)
        self._statistics = theta.new_zeros(most, gradient.statistics_size)
        self._running = RunningStatistics(task, self.buffers) if self.buffers else None
        if self._running is not None:
            self.buffers = self._running.buffers
        # Of a round: all of them added up.
        self._sum = theta.new_zeros(1 if plan.each > 1 else 0, len(theta))
        self._rows = plan.places.table.on(device)
        self._coefficients = coefficients(program, scalar_table(job), theta)
        self._losses = theta.new_zeros(len(schedule.group_rows))
        self._counter = torch.zeros(1, device=device, dtype=torch.int64)
        self._ahead = torch.arange(most, device=device)
        # Windows of a launch's own tables begin at 0 and end at its number of updates.
        self._windows = torch.arange(most + 1, device=device)[:, None] * torch.arange(2).to(device)
        self._first = torch.zeros_like(self._counter)
        # Augmented batches are made on the host's word, so they come into the graph from outside.
        self._outside: list[tuple[Tensor, Tensor]] = []
        if task.augments:
            x, y = task.batch(self._turn(0))
            self._outside = [(x.clone(), y.clone()) for _ in range(most)]
        rows = schedule.group_rows
        self._samples = task.indices_of(schedule.worker[rows], schedule.step[rows], rows)
        # A gradient alone reads its view where it lies, by a graph for each place: that of a large
        # model is not copied.
        self._in_place = most == 1 and gradient.arrangement.is_straight
        self._slots = plan.places.table.view.tolist()
        self._graphs: dict[GraphKey, torch.cuda.CUDAGraph] = {}

    def _start_views(self) -> None:
        theta = self._numbers.theta
        self._views[:, : len(theta)] = theta

    def _turn(self, gradient: int) -> Turn:
        row = int(self.schedule.group_rows[gradient])
        return Turn(int(self.schedule.worker[row]), int(self.schedule.step[row]), row)

    # -- a launch, as captured

    def _step(self, key: GraphKey) -> None:
        """So many gradients and, of a round if they are its last, what they make."""
        count, last, slot = key
        gradients = self._counter + self._ahead[:count]
        updates = gradients if self._plan.each == 1 else gradients // self._plan.each
        rows = self._rows.index_select(0, updates)
        rows[:, GRAD] = self._ahead[:count]
        self._statistics.zero_()
        branches = [
            partial(self._branch, j, rows[j : j + 1], gradients, slot) for j in range(count)
        ]
        others = branch_streams(self.task.device)[1:]
        side_by_side(branches, others)
        self._losses.index_copy_(0, gradients, self._loss[:count])
        works: list[Callable[[], None]] = []
        if self._plan.each == 1:
            works.append(partial(self._apply, self._grads, rows, updates))
        else:
            works.append(partial(self._add, rows, updates, last))
        if self._running is not None:
            works.append(partial(self._running.fold, self._statistics[:count]))
        side_by_side(works, others)
        self._counter.add_(count)

    def _branch(self, j: int, row: Tensor, gradients: Tensor, slot: int | None) -> None:
        if self._outside:
            x, y = self._outside[j]
        else:
            train = self.task.data.train
            chosen = self._samples.index_select(0, gradients[j : j + 1])[0]
            x, y = train.inputs.index_select(0, chosen), train.targets.index_select(0, chosen)
        if slot is None:
            params = self._gradient.arrangement.staged(self._views, row[:, VIEW])[0]
        else:
            params = self._views[slot]
        out = self._grads[j, : len(self._numbers.theta)]
        self._loss[j].copy_(self._gradient(params, self._statistics[j], x, y, out))

    def _add(self, rows: Tensor, updates: Tensor, last: bool) -> None:
        """Of a round: one after another, as the mean of a group is defined."""
        for j in range(len(updates)):
            self._sum[0].add_(self._grads[j, : self._sum.shape[1]])
        if last:
            self._sum.div_(self._plan.each)
            self._apply(self._sum, rows[:1], updates[:1])
            self._sum.zero_()

    def _apply(self, grads: Tensor, rows: Tensor, updates: Tensor) -> None:
        """The updates, by the gradients that the rows say."""
        numbers = self._numbers
        self._kernel.run(
            numbers.theta,
            numbers.states,
            numbers.owns,
            grads,
            self._views,
            rows,
            self._coefficients.index_select(0, updates),
            self._windows[len(updates)],
            self._first,
        )

    # -- capturing and replaying

    def prepare(self) -> None:
        """Capture the graphs, leaving everything as it was."""
        with torch.no_grad():
            # On the host: a large model's would take room of what graphs need.
            saved = {name: t.cpu() for name, t in self.tensors().items() if name != "views"}
            # What one graph has freed, the next uses: no two are ever replayed at once.
            pool = torch.cuda.graph_pool_handle()
            for key in self._keys():
                self._graphs[key] = self.captured(key, pool)
            for name, tensor in saved.items():
                self.tensors()[name].copy_(tensor)
            self._start_views()
            self._sum.zero_()

    def _keys(self) -> list[GraphKey]:
        """Of all graphs, largest first."""
        if self._in_place:
            launches = self._launches(0, len(self._slots))
            return list(dict.fromkeys(self._key(at, n) for at, n in launches))
        if self._plan.each == 1:
            return [GraphKey(size, True) for size in reversed(SIZES) if size <= self.most]
        return list(dict.fromkeys(self._key(at, n) for at, n in self._launches(0, 1)))

    def _key(self, gradient: int, count: int) -> GraphKey:
        """Of the graph for the next so many gradients."""
        last = (gradient + count) % self._plan.each == 0
        slot = self._slots[gradient // self._plan.each] if self._in_place else None
        return GraphKey(count, last, slot)

    def captured(self, key: GraphKey, pool: Any) -> torch.cuda.CUDAGraph:
        stream = branch_streams(self.task.device)[0]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's compiler warns of itself
            for _ in range(2):  # choose kernels outside the capture
                self._counter.zero_()
                self._step(key)
        torch.cuda.current_stream().wait_stream(stream)
        self._counter.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            self._step(key)
        return graph

    def _launches(self, begin: int, end: int) -> Sequence[tuple[int, int]]:
        return list(self._plan.launches(begin, end, self.most))

    def _replay(self, until: int) -> Floats:
        with torch.no_grad():
            for at, count in self._launches(self.position, until):
                for j, (x, y) in enumerate(self._outside[:count]):
                    inputs, targets = self.task.batch(self._turn(at + j))
                    x.copy_(inputs)
                    y.copy_(targets)
                self._graphs[self._key(at, count)].replay()
        each = self._plan.each
        losses: Floats = self._losses[self.position * each : until * each].double().cpu().numpy()
        return losses.reshape(-1, each)

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
