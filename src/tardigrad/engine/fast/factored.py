"""Gradients that stay products of two thin matrices until they are applied.

The gradient of a layer's weights is a product: what went into the layer times the errors that came
back, with one term for each sample. With few samples, writing it down and reading it again is most
of what a gradient costs on a CPU. So its factors are handed on, and the window multiplies them, a
tile at a time, as fast as they can be multiplied (`kernels/products.py`).
"""

import torch
from torch import fx

from tardigrad.engine.fast.input_prologue import VIEWS

ATEN = torch.ops.aten
TERMS = 256
"""Of more, a window's gradients do not stay in the second-level cache together."""
NUMBERS, COLUMNS = 16_384, 128
"""Smaller products are not worth it, and narrower ones would leave windows with short rows."""

FactorNodes = tuple[fx.Node, fx.Node]


def with_factors(pieces: tuple[fx.Node, ...]) -> tuple[fx.Node | FactorNodes, ...]:
    """Gradients that a traced function returns; each product of few terms as its two factors."""
    return tuple(_factors(piece) or piece for piece in pieces)


def _factors(piece: fx.Node) -> FactorNodes | None:
    chain: list[fx.Node] = []
    node = piece
    while node.target in VIEWS:
        chain.append(node)
        node = node.all_input_nodes[0]
    if node.target is not ATEN.bmm.default or not node.meta["val"].is_floating_point():
        return None
    left, right = node.all_input_nodes
    rows = left.meta["val"].shape[1]
    count, terms, columns = right.meta["val"].shape
    if terms > TERMS or rows * columns < NUMBERS or columns < COLUMNS:
        return None
    if terms * (rows + columns) > rows * columns:
        return None  # they would take more room than their product
    # The views may have turned it around: what they make of numbers that say where they are tells.
    places = torch.arange(count * rows * columns).view(count, rows, columns)
    seen = places
    for view in reversed(chain):
        seen = view.target(seen, *view.args[1:])  # type: ignore[operator]
    return (left, right) if torch.equal(seen, places.flatten(1)) else None
