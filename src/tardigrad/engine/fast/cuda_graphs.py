"""Whole windows as captured CUDA graphs: batched gradients, fused updates, nothing on the host.

One replay is one look-ahead batch: it reads which rows to compute from tables on the device,
gathers their samples, computes their gradients at the staged views (vmapped, compiled), applies the
window in one kernel that writes the next batch's views, and counts itself on. The host only asks
for the next replay.

Several *replicas* of a run (other rules, other seeds of the task) can go through one schedule
together: what is one vector of a run is then R of them side by side, so a batch of gradients is R
times larger and a window still one kernel, for each group of rules that share its text.
"""

import gc
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Floats
from tardigrad.core.trees import named
from tardigrad.engine.fast.batches import look_ahead
from tardigrad.engine.fast.coefficients import coefficients, scalar_table
from tardigrad.engine.fast.cuda_gradients import apart, compiled_on_device, tensors_of
from tardigrad.engine.fast.in_place import InPlace
from tardigrad.engine.fast.stacking import Stacking, by_kernel, stacked_coefficients
from tardigrad.engine.fast.view_places import in_stages
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import Program, trace
from tardigrad.engine.kernels.triton import TritonKernel, fetch_samples, move_rows
from tardigrad.rules import RuleState

BUFFERS = ("views", "grads")
"""Large, and written before they are read, but for the views that the first batch reads."""


def on_device(array: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def side_by_side(
    works: Sequence[Callable[[], None]], streams: Sequence[torch.cuda.Stream] | None = None
) -> None:
    """Launch them on streams of their own, so that small ones share the GPU, and join them.

    The first stays on the current stream; `streams`, at least one for each other, or new ones.
    """
    main = torch.cuda.current_stream()
    if streams is None:
        streams = [torch.cuda.Stream() for _ in works[1:]]  # type: ignore[no-untyped-call]
    for stream, work in zip(streams, works[1:], strict=False):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            work()
    works[0]()
    for stream, _ in zip(streams, works[1:], strict=False):
        main.wait_stream(stream)


class _Group(InPlace):
    """Replicas whose rules share a kernel, and what those keep; `part` is theirs of every row."""

    def __init__(
        self,
        jobs: Sequence[Job],
        programs: Sequence[Program],
        stacking: Stacking,
        whole: Tensor,
        first: int,
    ) -> None:
        self.part = slice(first * stacking.stride, (first + len(jobs)) * stacking.stride)
        theta = whole[self.part]
        starts = [(job.rule, *job.parts()[0]) for job in jobs]
        super().__init__(
            theta,
            stacking.place_trees([rule.start(at, layout) for rule, at, layout in starts]),
            stacking.place_trees([rule.start_own(at, layout) for rule, at, layout in starts]),
            jobs[0].schedule.workers,
        )
        self.kernel = TritonKernel(programs[0], theta.dtype, len(jobs))
        self.coefficients = stacked_coefficients(
            [
                coefficients(program, scalar_table(job), theta)
                for job, program in zip(jobs, programs, strict=True)
            ]
        )


class ReplicaNumbers(NamedTuple):
    """A replica's part of what all of them keep."""

    theta: Tensor
    state: RuleState


class CudaGraphs:
    """Executes a one-shard schedule of single gradients on one GPU, for one or more replicas: jobs
    that share the schedule, whose tasks differ in their seed alone."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs, self.schedule = jobs, jobs[0].schedule
        self._task = task = jobs[0].module
        self.position, self.batch = 0, 0
        schedule, device, dtype = self.schedule, task.device, task.dtype
        self.batches = batches = look_ahead(schedule)
        places = in_stages(schedule, batches)
        self.stage = batches.largest
        self.stacking = stacking = Stacking(task.layout.size, len(jobs))
        programs = [trace(job.rule, dtype) for job in jobs]
        together = by_kernel(programs)
        # Replicas lie group after group; `_at` says where each one does.
        order = [i for members in together for i in members]
        self._at = np.argsort(order)
        self.theta = stacking.place([jobs[i].task.start() for i in order])
        self._views = torch.zeros(places.count, stacking.row, device=device, dtype=dtype)
        self._start_views()
        self.grads = torch.zeros_like(self._views)
        self._groups = self._grouped(together, programs)
        reads_view = any(program.reads_view for program in programs)
        self._moved = (self.grads, self._views) if reads_view else (self.grads,)
        self._rows = places.table.on(device)
        self._window = on_device(batches.window, device)
        # Samples and losses stand in the order of computing. A batch is padded to its graph's size
        # with the rows after it, whose losses are then written again when their turn comes.
        rows = batches.rows
        self._place_of_row = np.empty(schedule.rows, dtype=np.int64)
        self._place_of_row[rows] = np.arange(len(rows))
        drawn = [
            jobs[i].module.indices_of(schedule.worker[rows], schedule.step[rows], rows)
            for i in order
        ]
        samples = drawn[0] if len(drawn) == 1 else torch.stack(drawn, dim=1)
        self._samples = torch.cat([samples, samples[:1].expand(self.stage, *samples.shape[1:])])
        train = task.data.train
        self._data = (train.inputs.contiguous(), train.targets.contiguous())
        self._losses = torch.zeros(self._samples.shape[:-1], device=device, dtype=dtype)
        self._start = on_device(batches.start, device)
        sizes = [len(moves) for moves in places.moves]
        self._moves = on_device(np.concatenate(places.moves), device)
        self._move_start = on_device(np.concatenate([[0], np.cumsum(sizes)]), device)
        self._counter = torch.zeros(1, device=device, dtype=torch.int64)
        self._sizes = np.diff(batches.start)
        self._parts: dict[tuple[int, int], list[Tensor]] = {}
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def _start_views(self) -> None:
        self._views[: 2 * self.stage, : self.theta.numel()] = self.theta

    def _grouped(self, together: list[list[int]], programs: Sequence[Program]) -> list[_Group]:
        groups: list[_Group] = []
        first = 0
        for members in together:
            jobs, theirs = [self.jobs[i] for i in members], [programs[i] for i in members]
            groups.append(_Group(jobs, theirs, self.stacking, self.theta, first))
            first += len(members)
        return groups

    # -- one batch, as captured

    def _compute(self, count: int, parity: int) -> None:
        # Fetched outside the compiled function: fused into the gradient, samples would be fetched
        # again for every parameter.
        stride, data = self.stacking.stride, self._data
        chosen = self._samples[:count].flatten(0, -2)
        inputs, targets = (t.new_empty(*chosen.shape, *t.shape[1:]) for t in data)
        places = self._start.new_empty(count)
        fetch_samples(
            *(self._samples, self._start, self._counter),
            *(*data, inputs, targets, places),
        )
        begin = parity * self.stage
        piece = slice(begin, begin + count)
        views = self._views[piece].view(-1, stride)
        with self._task.products():
            losses = compiled_on_device(self._task, len(chosen), stride)(
                views, inputs, targets, *self._outs(count, parity)
            )
        self._losses.index_copy_(0, places, losses.view(count, *self._losses.shape[1:]))

    def _outs(self, count: int, parity: int) -> list[Tensor]:
        """Where a batch's gradients go."""
        if (count, parity) not in self._parts:
            piece = self.grads[parity * self.stage :][:count].view(-1, self.stacking.stride)
            self._parts[count, parity] = apart(tensors_of(piece, self._task.layout))
        return self._parts[count, parity]

    def apply_window(self, begin: int, end: int) -> None:
        """Updates begin to end − 1, of a window whose gradients are there."""
        span = torch.tensor([begin, end], device=self.theta.device)
        for group in self._groups:
            self._window_of(group, span, torch.zeros_like(self._counter))

    def _window_of(self, group: _Group, windows: Tensor, batch: Tensor) -> None:
        group.kernel.run(
            group.theta,
            group.states,
            group.owns,
            self.grads[:, group.part],
            self._views[:, group.part],
            self._rows,
            group.coefficients,
            windows,
            batch,
        )

    def finish_batch(self) -> None:
        for buffer in self._moved:
            self._move(buffer)
        self._counter.add_(1)

    def _move(self, buffer: Tensor) -> None:
        move_rows(buffer, self._moves, self._move_start, self._counter, len(self.theta))

    def prepare(self) -> None:
        """Compile and capture what the run will replay, before it starts."""
        # Gradient mode is part of what torch compiles for, and `advance` runs without.
        with torch.no_grad():
            saved = {name: t.clone() for name, t in self.tensors().items() if name not in BUFFERS}
            for b, size in enumerate(self._sizes):
                key = self._bucket(int(size)), b % 2
                if key not in self._graphs:
                    self._graphs[key] = self.captured(*key)
            for name, tensor in saved.items():
                self.tensors()[name].copy_(tensor)
            self._start_views()
        # What the compiler leaves behind in cycles can hold a batch's work space.
        gc.collect()
        torch.cuda.empty_cache()

    def captured(self, count: int, parity: int) -> torch.cuda.CUDAGraph:
        """The graph for batches of up to `count` rows and their windows."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's compiler warns of itself
            for _ in range(2):  # compile and choose kernels outside the capture
                self._counter.zero_()
                self._step(count, parity)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(count, parity)
        return graph

    def _step(self, count: int, parity: int) -> None:
        self._compute(count, parity)
        # None reads what another writes: what is moved is what the window does not apply.
        windows = [partial(self._window_of, g, self._window, self._counter) for g in self._groups]
        side_by_side([*windows, *(partial(self._move, buffer) for buffer in self._moved)])
        self._counter.add_(1)

    def tensors(self) -> dict[str, Tensor]:
        """All that changes, by name."""
        out = {
            "theta": self.theta,
            "views": self._views,
            "grads": self.grads,
            "losses": self._losses,
            "counter": self._counter,
        }
        for g, group in enumerate(self._groups):
            prefix = f"{g}." if g else ""
            out |= named(group.state, f"{prefix}state")
            out |= {f"{prefix}own.{i}": own for i, own in enumerate(group.owns)}
        return out

    # -- what replicas see

    def numbers_of(self, replica: int) -> ReplicaNumbers:
        """Not copied: they change as the graphs advance."""
        at = int(self._at[replica])
        begin = at * self.stacking.stride
        (group,) = [g for g in self._groups if g.part.start <= begin < g.part.stop]
        within = (begin - group.part.start) // self.stacking.stride
        state = self.stacking.tree_of(group.state, within)
        return ReplicaNumbers(self.stacking.of(self.theta, at), state)

    def advance(self, until: int) -> Floats:
        """Apply updates up to `until`, whole windows at a time where they fit.

        Their losses, (updates, replicas).
        """
        with torch.no_grad():
            before = self.position
            while self.position < until:
                self._advance(until)
        rows = self.schedule.group_rows[before : self.position]
        places = torch.from_numpy(self._place_of_row[rows]).to(self.theta.device)
        losses: Floats = self._losses[places].double().cpu().numpy()
        return losses.reshape(len(rows), -1)[:, self._at]

    def _advance(self, until: int) -> None:
        begin, end = (int(x) for x in self.batches.window[self.batch : self.batch + 2])
        count, parity = self._bucket(int(self._sizes[self.batch])), self.batch % 2
        if self.position == begin and end <= until:
            self._graphs[count, parity].replay()
            self.position, self.batch = end, self.batch + 1
            return
        if self.position == begin:
            # A window that a stop cuts is rare: not worth a graph of its gradients alone.
            self._compute(count, parity)
        stop = min(end, until)
        self.apply_window(self.position, stop)
        self.position = stop
        if stop == end:
            self.finish_batch()
            self.batch += 1

    def _bucket(self, size: int) -> int:
        """Batches are padded to few sizes, so that few graphs serve a run."""
        bucket = 8
        while bucket < size:
            bucket *= 4
        return min(self.stage, bucket)
