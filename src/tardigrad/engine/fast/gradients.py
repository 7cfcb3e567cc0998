"""Many gradients in one call: vmapped over views and batches, compiled; or one after another."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from tardigrad.core.arrays import Ints
from tardigrad.engine.fast.batch_sizes import cover
from tardigrad.engine.fast.compiled import BatchFound, InTwoParts
from tardigrad.engine.job import Job
from tardigrad.engine.kernels.pieces import plain
from tardigrad.engine.unsuited import Unsuited
from tardigrad.tasks import ModuleTask, Task, Turn
from tardigrad.tasks.randomness import watched
from tardigrad.work import OneGradient, clipped

CALL = 0.5
"""What a call on the CPU costs before its first gradient, in gradients."""
ALIGN = 32
"""Rows of buffers begin at multiples of so many numbers: matrix kernels want 16 bytes."""
LARGE = 2_000_000
"""Parameters from which on one gradient alone keeps a CPU busy."""


class Computed(NamedTuple):
    """Gradients, one a row, their losses, and their batches' statistics (BatchNorm)."""

    grads: Tensor
    losses: Tensor
    statistics: tuple[Tensor, ...] = ()


class Gradients(Protocol):
    """Computes rows of a schedule at the views given, one a (`padded`) row."""

    def __call__(self, views: Tensor, rows: Ints) -> list[Computed]:
        """In order; several pieces where the rows do not fit one call. A piece may be longer than
        what is left: the rest of it means nothing."""
        ...


class OneByOne:
    """The task's own gradient, row after row."""

    def __init__(self, job: Job) -> None:
        self._schedule, self._task, self._work = job.schedule, job.task, job.one_gradient

    def __call__(self, views: Tensor, rows: Ints) -> list[Computed]:
        schedule = self._schedule
        turns = [Turn(int(schedule.worker[r]), int(schedule.step[r]), int(r)) for r in rows]
        size = self._task.layout.size
        found = [
            self._work.run(self._task, view[:size], (), turn, 1).gradient
            for view, turn in zip(views, turns, strict=True)
        ]
        grads = torch.stack([f.grad for f in found])
        losses = torch.stack([f.loss for f in found])
        kinds = zip(*(f.buffers for f in found), strict=True)
        return [Computed(grads, losses, tuple(torch.stack(kind) for kind in kinds))]


_compiled: WeakKeyDictionary[ModuleTask, dict[tuple[int, int, float | None], InTwoParts]]
_compiled = WeakKeyDictionary()


def padded(size: int) -> int:
    """Numbers from one row of a buffer to the next: matrix kernels want rows that are aligned."""
    return -(-size // ALIGN) * ALIGN


class Batched:
    """vmap over views and batches, compiled for a few sizes; what does not fit one is padded."""

    def __init__(self, job: Job, sizes: Sequence[int]) -> None:
        self._schedule, self._task, self._work = job.schedule, job.module, job.one_gradient
        self._sizes = tuple(sizes)

    def __call__(self, views: Tensor, rows: Ints) -> list[Computed]:
        schedule, out, at = self._schedule, [], 0
        for size in cover(len(rows), self._sizes, CALL):
            mine, seen = rows[at : at + size], views[at : at + size]
            if len(mine) < size:
                spare = size - len(mine)
                seen = torch.cat([seen, seen[-1:].expand(spare, -1)])
            inputs, targets = self._task.batches(schedule.worker[mine], schedule.step[mine], mine)
            if len(mine) < size:
                inputs = torch.cat([inputs, inputs[-1:].expand(spare, *inputs.shape[1:])])
                targets = torch.cat([targets, targets[-1:].expand(spare, *targets.shape[1:])])
            with torch.no_grad():
                function = compiled_gradients(self._task, self._work, size)
                grads, losses, statistics = function(seen, inputs, targets)
            whole = torch.cat([plain(piece) for piece in grads], dim=1)
            out.append(Computed(whole, losses, statistics))
            at += size
        return out


def compiled_gradients(task: ModuleTask, work: OneGradient, size: int, each: int = 1) -> InTwoParts:
    """(views, inputs, targets), `size` of each → gradients, losses, statistics; compiled once per
    task and size. Rows of views are `padded`; inputs and targets of a row are `each` batches."""
    known = _compiled.setdefault(task, {})
    key = (size, each, work.clip_norm)
    if key not in known:
        batches = task.batches(*[[0] * size * each] * 3)
        inputs, targets = (t.reshape(size, -1, *t.shape[2:]) for t in batches)
        theta = task.start()
        views = theta.new_zeros(size, padded(len(theta)))
        views[:, : len(theta)] = theta
        given = (views, inputs, targets)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch's compiler warns of itself
            function = InTwoParts(make_fx(batch_gradients(task, work))(*given), given)
            function(*given)
        known[key] = function
    return known[key]


def batch_gradients(
    task: ModuleTask, work: OneGradient
) -> Callable[[Tensor, Tensor, Tensor], BatchFound]:
    """The function that is traced and compiled."""
    layout = task.layout
    at = layout.offsets

    def loss(
        pieces: list[Tensor], inputs: Tensor, targets: Tensor, zeros: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        params = dict(zip(layout.names, pieces, strict=True))
        if not zeros:
            return task.loss_of(params, inputs, targets), ()
        return task.loss_and_statistics_of(params, inputs, targets, zeros)

    def gradients(views: Tensor, inputs: Tensor, targets: Tensor) -> BatchFound:
        count = len(views)
        pieces = [
            views[:, at[i] : at[i + 1]].reshape(count, *shape)
            for i, shape in enumerate(layout.shapes)
        ]
        zeros = tuple(z.new_zeros(count, *z.shape) for z in task.statistics_zeros())
        found, (losses, statistics) = vmap(grad_and_value(loss, has_aux=True))(
            pieces, inputs, targets, zeros
        )
        # In pieces, because the compiler would copy them to make one of them.
        # A sum's gradient is one number spread out, whose strides the compiler would keep.
        grads = tuple(grad.flatten(1).contiguous() for grad in found)
        if work.clip_norm is not None:
            grads = (vmap(lambda grad: clipped(grad, work.clip_norm))(torch.cat(grads, dim=1)),)
        return grads, losses, statistics

    return gradients


def check_batchable(task: Task, work: OneGradient) -> ModuleTask:
    """The task, where vmap gives the gradients that it gives one by one; else Unsuited."""
    if not isinstance(task, ModuleTask):
        raise _unsuited("the task is not a module, so vmap cannot batch its gradients")
    if not task.is_plain:
        raise _unsuited("a sample is more than one tensor and a target, or the loss is the model's")
    if task.precision == "bf16":
        raise _unsuited("products are rounded to bfloat16, and compiled ones in other places")
    if task.stochastic:
        raise _unsuited("the model draws random numbers (dropout), which vmap would share")
    if task.convolves:
        raise _unsuited("the model has convolutions, which run no faster in batches of models")
    if task.layout.size >= LARGE:
        raise _unsuited("the model is large, so one gradient at a time keeps the machine busy")
    turns = [Turn(0, 0, 0), Turn(0, 1, 1)]
    views = torch.stack([task.start(), task.start() * 1.01])
    # First, because what is refused here may fail under vmap.
    alone = [work.run(task, views[i], (), turn, 1).gradient for i, turn in enumerate(turns)]
    inputs, targets = task.batches([0, 0], [0, 1], [0, 1])
    try:
        with watched(task.device) as moved:
            pieces, losses, _ = batch_gradients(task, work)(views, inputs, targets)
            whose = moved()
    except Exception as error:
        first = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
        raise _unsuited(f"vmap cannot batch the model ({type(error).__name__}: {first})") from None
    if whose is not None:  # a compiled gradient would draw once, while it is compiled
        raise _unsuited(f"the model or its loss draws from {whose} generator")
    grads = torch.cat([plain(piece) for piece in pieces], dim=1)
    for i, one in enumerate(alone):
        expected = one.grad
        off = (grads[i] - expected).abs().max() / expected.abs().max().clamp(min=1e-30)
        if not off <= 1e-3 or not (losses[i] - one.loss).abs() <= 1e-3 * one.loss.abs() + 1e-6:
            raise _unsuited("under vmap the model gives other gradients than one by one")
    return task


def _unsuited(why: str) -> Unsuited:
    return Unsuited(why, "gradients")
