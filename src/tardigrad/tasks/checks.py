"""Checks of arguments that say what to use instead."""

import torch
from torch import Tensor, nn

from tardigrad.core.checks import require
from tardigrad.core.memory import physical_bytes
from tardigrad.tasks.samples import Samples, tensors_in


def at_least(field: str, value: float, low: float) -> None:
    if not value >= low:
        raise ValueError(f"{field} must be at least {low}, got {value}")


def check_parameters(theta: Tensor) -> None:
    """Refuse parameters that rules cannot work on: all but float32 and float64."""
    if theta.dtype in (torch.float32, torch.float64):
        return
    found = str(theta.dtype).removeprefix("torch.")
    why = (
        "which loses the small steps that rules add to them"
        if theta.dtype.is_floating_point
        else "and rules make steps along real numbers"
    )
    raise ValueError(
        f"the parameters are {found}, {why}: keep them in float32, as ModuleTask does with "
        "dtype='float32' (with precision='bf16' it computes in bfloat16 all the same)"
    )


def check_dense(module: nn.Module) -> None:
    """Refuse embeddings whose gradients would be sparse: every push is a whole flat vector."""
    for name, layer in module.named_modules():
        sparse = isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse
        require(
            not sparse or not layer.weight.requires_grad,
            f"{name or 'the module'} is {type(layer).__name__}(sparse=True), whose gradients are "
            "sparse, but rules and shards take whole vectors: make it with sparse=False",
        )


def check_batch_size(batch_size: int, inputs: Samples) -> None:
    """Refuse batches that this machine cannot hold, before one is drawn."""
    position = 8
    each = position + sum(part.nbytes // max(1, len(part)) for part in tensors_in(inputs))
    there = physical_bytes()
    require(
        batch_size * each <= there,
        f"batch_size = {batch_size:,} makes batches of at least {batch_size * each // 10**9:,} GB, "
        f"and this machine has {there // 10**9:,} GB of memory: use a smaller one",
    )
