"""Gradients as windows take them: in pieces, one of each tensor, each plain or as two factors."""

from typing import NamedTuple

import torch
from torch import Tensor


class Factors(NamedTuple):
    """Gradients of one tensor, each the product of its matrices in `left` and `right`."""

    left: Tensor
    """(gradients, rows, terms)"""
    right: Tensor
    """(gradients, terms, columns); columns lie side by side"""


Piece = Tensor | Factors
"""Gradients of one tensor, one a row."""
Pieces = tuple[Piece, ...]
"""Of all of the model's tensors; or all in one."""


class PieceShape(NamedTuple):
    """How many numbers a gradient has, and how many of them lie in one row of its tensor."""

    numbers: int
    columns: int


def plain(piece: Piece) -> Tensor:
    """(gradients, numbers)"""
    return torch.bmm(*piece).flatten(1) if isinstance(piece, Factors) else piece


def shape_of(piece: Piece) -> PieceShape:
    if isinstance(piece, Factors):
        columns = piece.right.shape[2]
        return PieceShape(piece.left.shape[1] * columns, columns)
    return PieceShape(piece.shape[1], max(1, piece.shape[1]))


def first_gradients(piece: Piece, count: int) -> Piece:
    """The first so many gradients."""
    return Factors(*(x[:count] for x in piece)) if isinstance(piece, Factors) else piece[:count]
