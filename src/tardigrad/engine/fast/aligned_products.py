"""Large products of matrices whose sides tensor cores cannot take: padded with zeros.

A vocabulary of 50,257 words makes rows that begin at no multiple of 16 bytes, and products of them
several times slower. Torch's compiler pads them where a trial says that it pays; here shapes alone
decide, so that every process does the same.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ATEN = torch.ops.aten
SIDE = 8
"""Numbers that sides are multiples of: 16 bytes in bfloat16."""
LARGE = 2**30
"""Multiplications from which on a copy of what is multiplied costs little beside them."""


def product(a: Tensor, b: Tensor) -> Any:
    """`aten.mm`."""
    (rows, inner), columns = a.shape, b.shape[1]
    if rows * inner * columns < LARGE or not any(size % SIDE for size in (rows, inner, columns)):
        return NotImplemented
    return ATEN.mm(_padded(a), _padded(b))[:rows, :columns]


def _padded(matrix: Tensor) -> Tensor:
    rows, columns = (-size % SIDE for size in matrix.shape)
    return F.pad(matrix, (0, columns, 0, rows)) if rows or columns else matrix
