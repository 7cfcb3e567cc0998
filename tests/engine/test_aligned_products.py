"""Large products of odd matrices: padded, and the same."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tardigrad.engine.fast import aligned_products
from tardigrad.engine.fast.aligned_products import product

ATEN = torch.ops.aten


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(8, 16, 13), (9, 16, 8), (16, 5, 24)])
def test_they_are_padded_and_the_same(
    rows: int, inner: int, columns: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aligned_products, "LARGE", 8 * 8 * 8)
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(rows, inner, generator=draw, dtype=torch.float64)
    b = torch.randn(inner, columns, generator=draw, dtype=torch.float64)
    if transposed:
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    traced = make_fx(torch.mm, decomposition_table={ATEN.mm.default: product})(a, b)
    torch.testing.assert_close(traced(a, b), a @ b, rtol=1e-13, atol=1e-13)
    (call,) = [node for node in traced.graph.nodes if node.target is ATEN.mm.default]
    sides = [side for arg in call.args for side in arg.meta["val"].shape]
    assert [side % 8 for side in sides] == [0] * 4


def test_small_or_even_ones_are_left() -> None:
    assert product(torch.zeros(7, 9), torch.zeros(9, 3)) is NotImplemented
    even = torch.empty(2**12, 2**12, device="meta")
    assert product(even, even) is NotImplemented
    assert product(even, torch.empty(2**12, 50_257, device="meta")).shape == (2**12, 50_257)
