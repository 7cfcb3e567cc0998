"""Operations that torch adds up in a fixed order and its compiler would not: called as they are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

ATEN = torch.ops.aten


@custom_op("tardigrad::embedding_gradient", mutates_args=())
def embedding_gradient(grad: Tensor, indices: Tensor, rows: int, padding: int) -> Tensor:
    """Of an embedding's table, `rows` of them. Torch sorts the indices and adds up in their order;
    compiled, it would be atomics."""
    found: Tensor = ATEN.embedding_dense_backward(grad, indices, rows, padding, False)
    return found


@embedding_gradient.register_fake
def _like(grad: Tensor, indices: Tensor, rows: int, padding: int) -> Tensor:
    return grad.new_empty(rows, grad.shape[-1])


def _embedding(grad: Tensor, indices: Tensor, rows: int, padding: int, by_count: bool) -> Any:
    if by_count:
        return NotImplemented
    return embedding_gradient(grad, indices, rows, padding)


FIXED_ORDER: dict[Any, Callable[..., Any]] = {ATEN.embedding_dense_backward.default: _embedding}
"""What to trace instead, by operation."""
