"""Products of matrices of our own: what they are, whatever lies where, on whichever processor."""

import ctypes
import itertools
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tardigrad.engine.kernels.compiler import flags_for
from tardigrad.engine.kernels.products import (
    batch_products,
    function_of,
    library_source,
    readable,
    suits,
)

Product = Callable[[Tensor, Tensor], Tensor]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
DTYPES = [torch.float32, torch.float64]
SIZES = [
    *itertools.product((1, 4, 5, 6, 13), (1, 8, 15, 17), (1, 5, 7, 16, 63, 65)),
    (33, 100, 200),
    (7, 2048, 3),
    (200, 40, 784),
    (700, 3, 2),
    (2, 300, 1000),
    (11, 131, 9),
    (0, 5, 7),
    (5, 0, 7),
    (5, 7, 0),
]
"""Rows, terms and columns: less than a tile, tiles with and without a rest, several parts; none."""


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
    off = (found.double() - expected).abs()
    assert (off <= (0.25 * left.shape[2] + 2) * torch.finfo(left.dtype).eps * magnitude).all()


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


def built_with(flags: list[str], dtype: torch.dtype, folder: Path) -> Product:
    code, built = folder / "products.cpp", folder / "products.so"
    code.write_text(library_source(dtype))
    subprocess.run(["g++", *flags, "-shared", str(code), "-o", str(built)], check=True)
    function = function_of(ctypes.CDLL(str(built)))

    def product(left: Tensor, right: Tensor) -> Tensor:
        (count, rows, terms), columns = left.shape, right.shape[2]
        out = left.new_empty(count, rows, columns)
        where = (left.data_ptr(), *left.stride(), right.data_ptr(), *right.mT.stride())
        function(1, count, rows, columns, terms, out.data_ptr(), *where)
        return out

    return product


def for_target(target: str) -> list[str]:
    return [f"-march={target}" if flag == "-march=native" else flag for flag in flags_for("g++")]


def check_parts(product: Product, dtype: torch.dtype) -> None:
    """Tiles at edges are other ones, and sums in them the same."""
    for left, right in filter(lambda both: readable(*both), sides(13, 100, 90, dtype)):
        whole = product(left, right)
        for cut in (1, 5, 11, 12):
            assert torch.equal(product(left[:, :cut], right), whole[:, :cut])
            assert torch.equal(product(left, right[:, :, :cut]), whole[:, :, :cut])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_part_of_a_product_has_the_same_bits(dtype: torch.dtype) -> None:
    check_parts(batch_products, dtype)


on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="its processors are of one kind")


@on_x86
@pytest.mark.parametrize("dtype", DTYPES)
def test_so_it_has_where_the_compiler_would_not_always_fuse(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    flags = [*for_target("x86-64-v3"), "-mtune=znver3"]
    check_parts(built_with(flags, dtype, tmp_path), dtype)


@on_x86
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_on_processors_with_shorter_vectors(
    target: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    product = built_with(for_target(target), dtype, tmp_path)
    for size in SIZES:
        for left, right in filter(lambda both: readable(*both), sides(*size, dtype)):
            check(product(left, right), left, right)


def test_they_are_for_products_in_which_they_are_faster() -> None:
    """Few terms that lie side by side are added up across lanes, short rows fill no vector."""
    wide, narrow = torch.zeros(2, 40, 16), torch.zeros(2, 40, 15)
    few, many = torch.zeros(2, 30, 95), torch.zeros(2, 30, 96)
    assert suits(torch.zeros(2, 30, 40), wide)
    assert not suits(torch.zeros(2, 30, 40), narrow)
    assert suits(many, torch.zeros(2, 9, 96).mT)
    assert not suits(few, torch.zeros(2, 9, 95).mT)
