"""Many gradients in one call on a GPU, written where the window kernel will read them."""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.dlpack import from_dlpack

from tardigrad.core.layout import Layout
from tardigrad.tasks import ModuleTask

TILE = 32
"""Rows and columns of a product that one processor of the GPU computes at a time."""
FEW_TILES = 64
LONG, PARTS = 512, 4
CompiledGradients = Callable[..., Tensor]
compiled_by_task: WeakKeyDictionary[ModuleTask, dict[tuple[int, int], CompiledGradients]] = (
    WeakKeyDictionary()
)


def compiled_on_device(task: ModuleTask, count: int, stride: int) -> CompiledGradients:
    """(views, inputs, targets, *outs) → losses; the gradients of `count` rows go into `outs`, one
    for each tensor of the model (`tensors_of`).

    Rows of views and gradients are `stride` long. Compiled once per task and these two: nothing
    else about a run has a shape in it.
    """
    known = compiled_by_task.setdefault(task, {})
    if (count, stride) not in known:
        names = task.layout.names

        def loss(pieces: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
            return task.loss_of(dict(zip(names, pieces, strict=True)), x, y)

        def gradients(views: Tensor, x: Tensor, y: Tensor, *outs: Tensor) -> Tensor:
            losses: Tensor
            grads, losses = vmap(grad_and_value(loss))(tensors_of(views, task.layout), x, y)
            for out, grad in zip(outs, grads, strict=True):
                out.copy_(grad)
            return losses

        views = torch.zeros(count, stride, device=task.device, dtype=task.dtype)
        chosen = torch.zeros(count, task.batch_size, device=task.device, dtype=torch.int64)
        train, outs = task.data.train, apart(tensors_of(views.clone(), task.layout))
        graph = make_fx(gradients, decomposition_table={torch.ops.aten.bmm.default: cut_product})(
            views, train.inputs[chosen], train.targets[chosen], *outs
        )
        known[count, stride] = torch.compile(graph, dynamic=False)
    return known[count, stride]


def tensors_of(rows: Tensor, layout: Layout) -> list[Tensor]:
    """The model's tensors, each of all rows, as views of them."""
    at = layout.offsets
    return [
        rows[:, at[i] : at[i + 1]].view(len(rows), *shape) for i, shape in enumerate(layout.shapes)
    ]


def apart(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same memory as tensors that torch does not know to share it.

    The compiler writes into tensors of their own as fast as memory goes; into parts of one it takes
    several times as long, because it writes that one as a whole.
    """
    return [from_dlpack(tensor) for tensor in tensors]


def cut_product(a: Tensor, b: Tensor) -> Any:
    """Products of matrices as this GPU and its compiler do them best.

    With one sample an outer product is element-wise, and the compiler can write it where it
    belongs. Where products have fewer tiles than half the GPU has processors, each is long: long
    sums are cut into parts that run beside each other, and added up.
    """
    count, rows, inner = a.shape
    columns = b.shape[-1]
    if inner == 1:
        return a * b
    tiles = count * -(-rows // TILE) * -(-columns // TILE)
    if tiles > FEW_TILES or inner < LONG or inner % PARTS:
        return NotImplemented
    part = inner // PARTS
    a = a.reshape(count, rows, PARTS, part).transpose(1, 2).reshape(-1, rows, part)
    parts = torch.bmm(a, b.reshape(-1, part, columns))
    return parts.view(count, PARTS, rows, columns).sum(1)
