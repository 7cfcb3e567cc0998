"""Products of matrices of our own: what they are, whatever lies where, on whichever processor."""

import ctypes
import itertools
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tardigrad.engine.kernels.compiler import FLAGS
from tardigrad.engine.kernels.products import batch_products, function_of, library_source, suits

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
DTYPES = [torch.float32, torch.float64]
SIZES = [
    *itertools.product((1, 4, 5, 6, 13), (1, 8, 15, 17), (1, 5, 7, 16, 63, 65)),
    (33, 100, 200),
    (7, 2048, 3),
    (200, 40, 784),
    (700, 3, 2),
    (2, 300, 1000),
]
"""Rows, terms and columns: less than a tile, tiles with and without a rest, several parts."""


def sides(rows: int, terms: int, columns: int, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Each side lying along its terms, and across them."""
    draw = torch.Generator().manual_seed(rows * terms + columns)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(2, *shape, generator=draw, dtype=dtype)

    lefts = drawn(rows, terms), drawn(terms, rows).mT
    rights = drawn(columns, terms).mT, drawn(terms, columns)
    return list(itertools.product(lefts, rights))


def check(found: Tensor, left: Tensor, right: Tensor) -> None:
    """Beside the sum of the magnitudes, which is what rounding can be measured by."""
    expected = left.double() @ right.double()
    magnitude = left.double().abs() @ right.double().abs()
    off = (found.double() - expected).abs() / magnitude
    assert off.max() <= (0.25 * left.shape[2] + 2) * torch.finfo(left.dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_they_are_the_products(dtype: torch.dtype) -> None:
    for size in SIZES:
        for left, right in sides(*size, dtype):
            check(batch_products(left, right), left, right)


def test_where_nothing_lies_side_by_side_too() -> None:
    left, right = torch.randn(2, 9, 40)[:, :, ::2], torch.randn(2, 40, 30)[:, ::2, ::2]
    assert not suits(left, right)
    check(batch_products(left, right), left, right)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_number_of_threads_changes_a_bit(dtype: torch.dtype) -> None:
    before = torch.get_num_threads()
    try:
        for size in ((33, 100, 200), (700, 3, 2), (2, 300, 1000)):
            for left, right in sides(*size, dtype):
                found = []
                for threads in (1, 2, 3):
                    torch.set_num_threads(threads)
                    found.append(batch_products(left, right))
                assert torch.equal(found[0], found[1])
                assert torch.equal(found[0], found[2])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("cut", [1, 5, 11, 12])
def test_a_part_of_a_product_has_the_same_bits(cut: int) -> None:
    """Tiles at edges are other ones, and sums in them the same."""
    for left, right in filter(lambda both: suits(*both), sides(13, 100, 90, torch.float32)):
        whole = batch_products(left, right)
        assert torch.equal(batch_products(left[:, :cut], right), whole[:, :cut])
        assert torch.equal(batch_products(left, right[:, :, :cut]), whole[:, :, :cut])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its processors are of one kind")
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_processors_with_shorter_vectors(
    target: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    code, built = tmp_path / "products.cpp", tmp_path / "products.so"
    code.write_text(library_source(dtype))
    flags = [f"-march={target}" if flag == "-march=native" else flag for flag in FLAGS[:-1]]
    subprocess.run(["g++", *flags, "-shared", str(code), "-o", str(built)], check=True)
    function = function_of(ctypes.CDLL(str(built)))
    for size in SIZES:
        for left, right in sides(*size, dtype):
            if not suits(left, right):
                continue
            (rows, terms), columns = left.shape[1:], right.shape[2]
            out = left.new_empty(2, rows, columns)
            where = (left.data_ptr(), *left.stride(), right.data_ptr(), *right.mT.stride())
            function(1, 2, rows, columns, terms, out.data_ptr(), *where)
            check(out, left, right)
