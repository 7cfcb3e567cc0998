"""Batched products that are not left to torch's library: the smallest as sums, most others as ours.

With 4 samples, reading a layer's weights once and writing its gradient once is nearly all there is
to do. Sums do just that, and the compiler fuses and vectorises them.
"""

from collections.abc import Callable

import torch
from torch import Tensor, fx, library

from tardigrad.engine.kernels.products import batch_products, suits

ATEN = torch.ops.aten
FEW = 4
"""Rows, or terms, up to which sums were faster for layers of any size."""
SMALL, TERMS = 32_768, 16
"""Multiplications up to which a product is small: then sums of up to so many terms were faster."""


# Not by `custom_op`, a call of which takes longer than a small product. Where this module is loaded
# again, it is there.
if not hasattr(torch.ops.tardigrad, "products"):
    library.define("tardigrad::products", "(Tensor left, Tensor right) -> Tensor")
    library.impl("tardigrad::products", "CPU", batch_products)
    library.register_fake(
        "tardigrad::products", lambda left, right: left.new_empty(*left.shape[:2], right.shape[2])
    )
PRODUCTS = torch.ops.tardigrad.products.default


def with_own_products(whole: fx.GraphModule) -> fx.GraphModule:
    """The same function; batched products of few rows or few terms are sums, others ours where they
    are faster."""
    for node in list(whole.graph.nodes):
        if node.op == "call_function" and node.target is ATEN.bmm.default:
            left, right = (arg.meta["val"] for arg in node.args)
            form = _form(left, right)
            if form is not None:
                with whole.graph.inserting_before(node):
                    new = whole.graph.call_function(form, node.args)
                new.meta = dict(node.meta)
                node.replace_all_uses_with(new)
                whole.graph.erase_node(node)
    whole.recompile()
    return whole


def _form(left: Tensor, right: Tensor) -> Callable[[Tensor, Tensor], Tensor] | None:
    (_, rows, terms), columns = left.shape, right.shape[2]
    if min(rows, terms, columns) == 0 or not left.is_floating_point():
        return None
    if min(rows, terms) == 1:
        return None  # the compiler does it by itself
    small = rows * terms * columns <= SMALL
    if terms <= (TERMS if small else FEW):
        return sum_of_outer_products
    if right.stride(1) == 1 and (small or rows <= FEW):
        return sums_of_rows
    return PRODUCTS if suits(left, right) else None


def sum_of_outer_products(left: Tensor, right: Tensor) -> Tensor:
    """Of few terms: one pass that writes the result."""
    total = left[:, :, 0, None] * right[:, 0, None, :]
    for term in range(1, left.shape[2]):
        total = total + left[:, :, term, None] * right[:, term, None, :]
    return total


def sums_of_rows(left: Tensor, right: Tensor) -> Tensor:
    """Of few rows: one pass that reads the right side, for all rows."""
    columns = right.transpose(1, 2)
    return torch.stack(
        [(columns * left[:, row, None, :]).sum(-1) for row in range(left.shape[1])], 1
    )
