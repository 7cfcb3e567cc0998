"""Gradients of convolutions as products and turned convolutions: torch's own, to rounding."""

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import tardigrad as tg
from tardigrad.engine.fast.branch_gradients import BranchGradient
from tardigrad.engine.fast.convolution_gradients import FEW, convolution_backward
from tests.engine.test_branches import images

ATEN = torch.ops.aten
SHAPES = [
    # channels, filters, filter's size, stride, padding
    (3, 5, (3, 3), 1, 1),
    (3, 5, (3, 3), 2, 1),
    (4, 6, (1, 1), 2, 0),
    (4, 6, (1, 1), 1, 0),
    (2, 3, (5, 3), 1, 2),
    (2, 3, (2, 3), 3, 0),
    (2, 3, (2, 2), 1, 3),
    (FEW, 4, (3, 3), 1, 1),
    (FEW, 4, (3, 3), 2, 1),
    (2, 300, (3, 3), 2, 1),
]


def case(shape: tuple[int, int, tuple[int, int], int, int], wanted: list[bool]) -> tuple[Any, ...]:
    channels, count, size, stride, pad = shape
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, channels, 9, 8, generator=draw, dtype=torch.float64)
    filters = torch.randn(count, channels, *size, generator=draw, dtype=torch.float64)
    how = [stride, stride], [pad, pad], [1, 1], False, [0, 0], 1
    out = ATEN.convolution(inputs, filters, None, *how)
    grad = torch.randn(out.shape, generator=draw, dtype=torch.float64)
    return grad, inputs, filters, [count], *how, wanted


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wanted", [[True, True, True], [False, True, False], [True, False, True]])
def test_they_are_torchs(shape: Any, wanted: list[bool]) -> None:
    given = case(shape, wanted)
    expected = ATEN.convolution_backward(*given)
    traced = make_fx(
        lambda *tensors: ATEN.convolution_backward(*tensors, *given[3:]),
        decomposition_table={ATEN.convolution_backward.default: convolution_backward},
    )(*given[:3])
    for found, right, asked in zip(traced(*given[:3]), expected, wanted, strict=True):
        if asked:
            torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
        else:
            assert found is None


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        (SHAPES[0], None),  # few channels: both are ours
        (SHAPES[1], [True, False]),  # an input's with a stride is not
        (SHAPES[7], [False, True]),  # a filter's of many channels is not
        (SHAPES[8], [True, False]),
        (SHAPES[9], [True, True]),  # nor one whose products take more room than what they are of
    ],
)
def test_what_is_left_to_cudnn_depends_on_shapes(shape: Any, left: list[bool] | None) -> None:
    given = case(shape, [True, True, False])
    traced = make_fx(
        lambda *tensors: ATEN.convolution_backward(*tensors, *given[3:]),
        decomposition_table={ATEN.convolution_backward.default: convolution_backward},
    )(*given[:3])
    calls = [n for n in traced.graph.nodes if n.target is ATEN.convolution_backward.default]
    assert [list(call.args[-1][:2]) for call in calls] == ([] if left is None else [left])


def test_others_are_torchs_whole() -> None:
    given = list(case(SHAPES[0], [True, True, False]))
    for place, other in ((6, [2, 2]), (7, True), (9, 3)):
        changed = [*given[:place], other, *given[place + 1 :]]
        assert convolution_backward(*changed) is NotImplemented


def test_full_precision_has_channels_first() -> None:
    of = images(channels_last=True)
    assert of.strides[0] == (27, 1, 9, 3)
    gradient = BranchGradient(of, tg.OneGradient())
    (row,) = gradient.arrangement.staged(of.start()[None], torch.zeros(1).long())
    assert all(tensor.is_contiguous() for tensor in gradient.arrangement.tensors_of(row))
