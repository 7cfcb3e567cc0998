"""Random changes to a batch of images: functions of (images, stream), so keyed like everything.

Image i of the batch uses draws of its own, so its change does not depend on the batch size.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tardigrad.core import keys

Augment = Callable[[Tensor, int], Tensor]
"""augment(inputs, stream): the inputs changed at random, the randomness taken from the stream."""


def pad_crop_flip(images: Tensor, stream: int, pad: int = 4) -> Tensor:
    """Pad with black, cut out at a random place, mirror every second one (CIFAR's usual)."""
    count, channels, height, width = images.shape
    draw = 3 * np.arange(count)
    top, left, mirrored = (
        torch.as_tensor(keys.integers(stream, draw + i, below), device=images.device)
        for i, below in enumerate((2 * pad + 1, 2 * pad + 1, 2))
    )
    across = torch.arange(width, device=images.device)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.where(mirrored[:, None] == 1, across.flip(0), across)
    return F.pad(images, (pad, pad, pad, pad))[
        torch.arange(count, device=images.device)[:, None, None, None],
        torch.arange(channels, device=images.device)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def rotate_zoom(images: Tensor, stream: int, degrees: float = 10.0, zoom: float = 0.1) -> Tensor:
    """Turn by up to ±degrees and zoom by up to ±zoom, bilinear, black outside.

    Whole-numbered pixels come back as float32: they lie between two values now.
    """
    pixels = images if images.is_floating_point() else images.float()
    draw = 2 * np.arange(len(images))
    angle = np.deg2rad(degrees) * (2 * keys.uniform(stream, draw) - 1)
    scale = 1 + zoom * (2 * keys.uniform(stream, draw + 1) - 1)
    cos, sin, zero = np.cos(angle) / scale, np.sin(angle) / scale, np.zeros_like(angle)
    matrix = np.stack([np.stack([cos, -sin, zero], -1), np.stack([sin, cos, zero], -1)], -2)
    grid = F.affine_grid(
        torch.as_tensor(matrix, dtype=pixels.dtype, device=pixels.device),
        list(pixels.shape),
        align_corners=False,
    )
    return F.grid_sample(pixels, grid, align_corners=False)


AUGMENTS: dict[str, Augment] = {"pad_crop_flip": pad_crop_flip, "rotate_zoom": rotate_zoom}


def augmentation(choice: str | Augment | None) -> Augment | None:
    """The augmentation of that name; None for None and "none"."""
    if choice is None or choice == "none":
        return None
    if not isinstance(choice, str):
        return choice
    if choice not in AUGMENTS:
        names = ", ".join(repr(name) for name in AUGMENTS)
        raise ValueError(
            f"augment must be 'none', {names} or a function (inputs, stream) -> inputs, "
            f"got {choice!r}"
        )
    return AUGMENTS[choice]
