"""Gradients of convolutions in full precision as a GPU does them fast, and always the same way.

Of cuDNN's kernels of full precision, those that add up in a fixed order are slow where channels are
few or the stride is more than one: on an H200 a filter's gradient took 2 to 20 times as long as the
same as a product of matrices, and an input's up to three times as long as the convolution with the
turned filter that it is. What is done how depends on the shapes alone, never on timing.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ATEN = torch.ops.aten
FEW = 64
"""Channels from which on cuDNN's gradient of a filter is the faster one, at a stride of one."""


def convolution_backward(
    grad: Tensor,
    inputs: Tensor,
    filters: Tensor,
    bias: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    wanted: list[bool],
) -> Any:
    """`aten.convolution_backward`: of the inputs, of the filters, of the bias, as wanted."""
    plain = filters.dim() == 4 and not transposed and groups == 1 and set(dilation) == {1}
    if not plain:
        return NotImplemented
    turns = wanted[0] and set(stride) == {1}
    multiplies = wanted[1] and _better_as_product(grad, filters, stride)
    if not turns and not multiplies:
        return NotImplemented
    rest = [wanted[0] and not turns, wanted[1] and not multiplies, wanted[2]]
    of_inputs = of_filters = of_bias = None
    if any(rest):
        of_inputs, of_filters, of_bias = ATEN.convolution_backward(
            *(grad, inputs, filters, bias, stride, padding, dilation),
            *(transposed, output_padding, groups, rest),
        )
    if turns:
        of_inputs = _of_inputs(grad, filters, padding)
    if multiplies:
        of_filters = _of_filters(grad, inputs, filters, stride, padding)
    return of_inputs, of_filters, of_bias


def _better_as_product(grad: Tensor, filters: Tensor, stride: list[int]) -> bool:
    """Also: the samples' products take no more room than what they are made of."""
    places = grad.shape[2] * grad.shape[3]
    return (filters.shape[1] < FEW or max(stride) > 1) and len(filters) <= places


def _of_inputs(grad: Tensor, filters: Tensor, padding: list[int]) -> Any:
    """With a stride of one: grad ∗ the filters turned by 180°, inputs and outputs exchanged."""
    turned = filters.flip(2, 3).transpose(0, 1)
    around = [size - 1 - pad for size, pad in zip(filters.shape[2:], padding, strict=True)]
    cut = [max(0, -pad) for pad in around]  # padded by more than the filter reaches
    inner = grad[:, :, cut[0] : grad.shape[2] - cut[0], cut[1] : grad.shape[3] - cut[1]]
    around = [max(0, pad) for pad in around]
    return ATEN.convolution(inner, turned, None, [1, 1], around, [1, 1], False, [0, 0], 1)


def _of_filters(
    grad: Tensor, inputs: Tensor, filters: Tensor, stride: list[int], padding: list[int]
) -> Tensor:
    """Σ over samples of grad · (what the filter saw)ᵀ, both matrices with a column for each place
    of the output."""
    samples, _, *size = grad.shape
    padded = F.pad(inputs, (padding[1], padding[1], padding[0], padding[0]))
    seen = torch.stack(
        [
            padded[
                :,
                :,
                i : i + (size[0] - 1) * stride[0] + 1 : stride[0],
                j : j + (size[1] - 1) * stride[1] + 1 : stride[1],
            ]
            for i in range(filters.shape[2])
            for j in range(filters.shape[3])
        ],
        dim=2,
    )
    places = size[0] * size[1]
    products = torch.bmm(
        grad.reshape(samples, -1, places), seen.reshape(samples, -1, places).transpose(1, 2)
    )
    return products.sum(0).view(filters.shape)
