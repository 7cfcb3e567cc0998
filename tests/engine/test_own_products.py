"""Batched products of few rows are sums of the same numbers, and larger ones are ours."""

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from tardigrad.bench.loops import perceptron
from tardigrad.engine.fast import own_products
from tardigrad.engine.fast.gradients import batch_gradients, padded
from tardigrad.engine.fast.own_products import PRODUCTS, with_own_products
from tardigrad.work import OneGradient

BMM = torch.ops.aten.bmm.default
DRAW = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DRAW, dtype=torch.float64)


def products(graph: fx.GraphModule) -> int:
    return sum(node.target is BMM for node in graph.graph.nodes)


# Rows, terms, columns, whether the right side lies along its terms, and what becomes of it.
CASES = {
    "few rows of a large layer": (4, 300, 200, True, own_products.sums_of_rows),
    "a few more": (5, 300, 200, True, PRODUCTS),
    "few rows that lie the other way": (4, 300, 200, False, PRODUCTS),
    "few terms of a large layer": (200, 4, 300, False, own_products.sum_of_outer_products),
    "a few more terms": (200, 5, 300, False, PRODUCTS),
    "very many terms": (5, 2049, 40, True, None),
    "small, many terms": (8, 200, 10, True, own_products.sums_of_rows),
    "small, few terms": (8, 10, 200, False, own_products.sum_of_outer_products),
    "one row": (1, 300, 200, True, None),
    "one term": (200, 1, 300, False, None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_product_of_few_is_the_sum_that_it_stands_for(name: str) -> None:
    rows, terms, columns, along_terms, form = CASES[name]
    left = drawn(3, rows, terms)
    right = drawn(3, columns, terms).transpose(1, 2) if along_terms else drawn(3, terms, columns)
    graph = make_fx(torch.bmm)(left, right)
    expected = left @ right
    changed = with_own_products(graph)
    assert [n.target for n in changed.graph.nodes if n.op == "call_function"] == [form or BMM]
    torch.testing.assert_close(changed(left, right), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("batch_size", "left_over"), [(1, 5), (4, 0), (8, 0), (64, 0)])
def test_the_perceptrons_gradients_are_the_same(batch_size: int, left_over: int) -> None:
    task = perceptron(batch_size, "cpu", "float64")
    inputs, targets = task.batches([0, 0], [0, 1], [0, 1])
    views = torch.zeros(2, padded(task.layout.size), dtype=torch.float64)
    views[:, : task.layout.size] = task.start()
    traced = make_fx(batch_gradients(task, OneGradient()))(views, inputs, targets)
    expected = traced(views, inputs, targets)
    changed = with_own_products(traced)
    # With one sample the compiler makes sums by itself.
    assert products(changed) == left_over
    found = changed(views, inputs, targets)
    for one, other in zip((*found[0], found[1]), (*expected[0], expected[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-14)
