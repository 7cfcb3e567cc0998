"""Products as the GPU's gradients take them, on the CPU: the same numbers in other orders."""

import pytest
import torch

from tardigrad.engine.fast.cuda_gradients import cut_product


@pytest.mark.parametrize("transposed", [False, True])
def test_a_long_product_is_the_sum_of_its_parts(transposed: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(3, 32, 784, generator=draw, dtype=torch.float64)
    b = torch.randn(3, 784, 10, generator=draw, dtype=torch.float64)
    if transposed:  # as a layer's weights are
        b = b.transpose(1, 2).contiguous().transpose(1, 2)
    found = cut_product(a, b)
    torch.testing.assert_close(found, a @ b, rtol=1e-12, atol=1e-12)


def test_an_outer_product_has_the_same_bits() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(5, 7, 1, generator=draw), torch.randn(5, 1, 6, generator=draw)
    assert torch.equal(cut_product(a, b), a @ b)


@pytest.mark.parametrize("shape", [(10, 32, 784, 200), (3, 32, 256, 10), (3, 32, 785, 10)])
def test_many_tiles_short_sums_and_what_does_not_divide_are_left_alone(
    shape: tuple[int, int, int, int],
) -> None:
    count, rows, inner, columns = shape
    assert (
        cut_product(torch.ones(count, rows, inner), torch.ones(count, inner, columns))
        is NotImplemented
    )
