"""Clipping: what a worker does to a gradient that is too long, before anybody else sees it."""

import torch
from torch import Tensor

from tardigrad.core.checks import positive


def check_clip_norm(clip_norm: float | None) -> None:
    if clip_norm is not None:
        positive("clip_norm", clip_norm)


def clipped(grad: Tensor, clip_norm: float | None) -> Tensor:
    """g · min(1, clip_norm / ‖g‖), of the whole gradient; as it is where clip_norm is None."""
    if clip_norm is None:
        return grad
    norm = torch.linalg.vector_norm(grad)
    return grad * torch.clamp(clip_norm / norm, max=1.0)
