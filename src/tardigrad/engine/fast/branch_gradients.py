"""One gradient as a branch of a captured graph: a function of tensors that are the branch's own.

It is traced and compiled once, for all branches. So that a run has the same bits twice, also in
another process, nothing in it may be chosen by timing, and nothing may be summed by atomics: what
adds up by index is called as torch has it (`fixed_order`), or the model is left as torch runs it.
"""

import warnings
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from tardigrad.engine.fast.aligned_products import product
from tardigrad.engine.fast.arrangement import Arrangement
from tardigrad.engine.fast.convolution_gradients import convolution_backward
from tardigrad.engine.fast.fixed_order import FIXED_ORDER
from tardigrad.engine.unsuited import Unsuited
from tardigrad.tasks import ModuleTask
from tardigrad.work import OneGradient, clipped

ATEN = torch.ops.aten
BATCH_NORMS = (ATEN.cudnn_batch_norm, ATEN.native_batch_norm, ATEN._native_batch_norm_legit)
"""Traced as what they do: they change running statistics without saying so."""
ADDING = {
    ATEN.embedding_dense_backward,
    ATEN._embedding_bag_backward,
    ATEN._embedding_bag_dense_backward,
    ATEN.index_put,
    ATEN.index_put_,
    ATEN._unsafe_index_put,
    ATEN._index_put_impl_,
    ATEN.index_add,
    ATEN.index_add_,
    ATEN.index_reduce,
    ATEN.put,
    ATEN.scatter_add,
    ATEN.scatter_add_,
    ATEN.scatter_reduce,
    ATEN.adaptive_max_pool2d_backward,
    ATEN.fractional_max_pool2d_backward,
    ATEN.max_pool3d_with_indices_backward,
    ATEN.adaptive_max_pool3d_backward,
    ATEN.avg_pool3d_backward,
    ATEN._adaptive_avg_pool3d_backward,
    ATEN.reflection_pad1d_backward,
    ATEN.reflection_pad2d_backward,
    ATEN.replication_pad1d_backward,
    ATEN.replication_pad2d_backward,
    ATEN.upsample_bilinear2d_backward,
    ATEN.upsample_bicubic2d_backward,
    ATEN.upsample_nearest2d_backward,
    ATEN.grid_sampler_2d_backward,
    ATEN._scaled_dot_product_flash_attention_backward,
    ATEN._scaled_dot_product_efficient_attention_backward,
}
"""Operations that add up by index, for which the compiler would write atomics or call others'."""
Found = tuple[Tensor, ...]
"""The loss, then the gradient of each of the model's tensors."""
Function = Callable[..., Found]
_compiled: WeakKeyDictionary[ModuleTask, Function | str] = WeakKeyDictionary()
"""Or why not."""


class BranchGradient:
    """Computes a gradient from a row of parameters (`Arrangement`) and a batch."""

    def __init__(
        self, task: ModuleTask, work: OneGradient, function: Function | None = None
    ) -> None:
        self.task, self._work = task, work
        self.arrangement = Arrangement(task.layout, _strides(task), task.device)
        self._statistics = [zeros.shape for zeros in task.statistics_zeros()]
        self.statistics_size = sum(shape.numel() for shape in self._statistics)
        self.is_compiled = function is not None
        self._function = as_function(task) if function is None else function

    def __call__(
        self, row: Tensor, statistics: Tensor, inputs: Tensor, targets: Tensor, out: Tensor
    ) -> Tensor:
        """The loss. The gradient goes into `out`, the batch's statistics into zeros."""
        pieces = self.arrangement.tensors_of(row)
        zeros = self.statistics_of(statistics)
        with self.task.products():
            loss, *grads = self._function(inputs, targets, *pieces, *zeros)
        self.arrangement.flatten_(out, grads)
        if self._work.clip_norm is not None:
            out.copy_(clipped(out, self._work.clip_norm))
        return loss

    def statistics_of(self, row: Tensor) -> list[Tensor]:
        """BatchNorm's, as views of a row."""
        ends = accumulate(shape.numel() for shape in self._statistics)
        return [
            row[end - shape.numel() : end].view(shape)
            for end, shape in zip(ends, self._statistics, strict=True)
        ]


def as_function(task: ModuleTask) -> Function:
    """(inputs, targets, *parameters, *zeros) → the loss and its gradient, as torch runs them; the
    zeros become the batch's statistics."""
    names = task.layout.names

    def gradient(inputs: Tensor, targets: Tensor, *tensors: Tensor) -> Found:
        with torch.enable_grad():
            params = [tensor.detach().requires_grad_() for tensor in tensors[: len(names)]]
            loss, _ = task.loss_and_statistics_of(
                dict(zip(names, params, strict=True)), inputs, targets, tensors[len(names) :]
            )
            grads = torch.autograd.grad(loss, params, materialize_grads=True)
        return loss.detach(), *grads

    return gradient


def compiled(task: ModuleTask, given: Sequence[Tensor]) -> Function:
    """`as_function`, compiled for tensors like those `given`; Unsuited where it cannot be."""
    if task not in _compiled:
        try:
            _compiled[task] = _compile(task, given)
        except Unsuited as why:
            _compiled[task] = str(why)
    known = _compiled[task]
    if isinstance(known, str):
        raise Unsuited(known, "gradients")
    return known


def _compile(task: ModuleTask, given: Sequence[Tensor]) -> Function:
    try:
        with task.products(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's compiler warns of itself
            graph = make_fx(as_function(task), decomposition_table=_table(task))(*given)
            added = adds_by_index(graph)
            if added is None:
                function: Function = torch.compile(graph, dynamic=False, options=_options(task))
                function(*given)
                return function
    except Exception as error:
        first = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
        why = f"compiling the gradient failed ({type(error).__name__}: {first})"
        raise Unsuited(why, "gradients") from None
    why = f"compiled, its {added} would add up in no fixed order"
    raise Unsuited(why, "gradients")


def _table(task: ModuleTask) -> Any:
    """What operations are traced as."""
    table: dict[Any, Any] = {**get_decompositions(list(BATCH_NORMS)), **FIXED_ORDER}
    table[ATEN.mm.default] = product
    if task.precision == "full":
        table[ATEN.convolution_backward.default] = convolution_backward
    return table


def _strides(task: ModuleTask) -> tuple[tuple[int, ...], ...]:
    """How parameters lie: in full precision channels first, whatever the task says, because cuDNN's
    kernels of full precision are slow with channels last."""
    if task.precision == "full":
        return tuple(torch.empty(shape, device="meta").stride() for shape in task.layout.shapes)
    return task.strides


def _options(task: ModuleTask) -> Any:
    """Nothing is chosen by timing, where torch's compiler can be told so: it would have other bits
    in another process. In full precision tensors lie as they come: the compiler takes what has no
    autograd for inference, and would lay images channels last."""
    known = torch._inductor.config.get_config_copy()
    wanted = {"deterministic": True}
    if task.precision == "full":
        wanted["layout_optimization"] = False
    return {name: value for name, value in wanted.items() if name in known}


def adds_by_index(graph: fx.GraphModule) -> str | None:
    """The first of the traced operations that does; None where none does."""
    for node in graph.graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if packet in ADDING:
            return str(packet).removeprefix("aten.")
    return None
