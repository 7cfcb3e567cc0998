"""Gradients as they are kept and pushed: whole at a worker, in slices at the shards."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from tardigrad.core.layout import Sharding
from tardigrad.rules import mean


class WholeGradient(NamedTuple):
    """Of all shards, as the rule has prepared it, and the buffers that came with it."""

    grad: Tensor
    buffers: tuple[Tensor, ...]


class RowPart(NamedTuple):
    """One shard's slice of a gradient, or of the mean of several."""

    grad: Tensor
    buffers: tuple[Tensor, ...]
    """Of all of them, one after the other; shard 0 alone gets them."""


def row_part(gradients: Sequence[WholeGradient], sharding: Sharding, shard: int) -> RowPart:
    """What a shard gets of a push and the gradients merged into it, which come first."""
    part = sharding.slice(shard)
    grad = mean([gradient.grad[part] for gradient in gradients])
    return RowPart(grad, row_buffers(gradients, shard))


def row_buffers(gradients: Sequence[WholeGradient], shard: int) -> tuple[Tensor, ...]:
    """What a shard gets beside it."""
    return tuple([b for g in gradients for b in g.buffers]) if shard == 0 else ()
