"""Image data sets as tensors, and the layer that normalises their pixels."""

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from tardigrad.core.checks import one_of
from tardigrad.tasks import data as data_sets
from tardigrad.tasks.split import Data, Split
from tardigrad.tasks.structure import known_layer

Pixels = Literal["standard", "unit"]

# Mean and deviation of each channel over the training images, pixels from 0 to 1.
PIXELS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}


@known_layer(takes=4, gives=4)
class Normalise(nn.Module):
    """(pixels / 255 − mean) / deviation, per channel: the first layer of every image model.

    As a layer, the data stays one byte a pixel in memory (CIFAR-10 as float64 would take 1.5 GB
    in every worker process). pixels="unit" leaves them from 0 to 1, as older work did.
    """

    def __init__(self, name: str, pixels: Pixels = "standard") -> None:
        super().__init__()
        one_of("pixels", pixels, ("standard", "unit"))
        known = PIXELS[name] if pixels == "standard" else ((0.0,), (1.0,))
        mean, std = (torch.tensor(t, dtype=torch.float64).view(-1, 1, 1) for t in known)
        # Constants, so not persistent: nothing of them belongs in a checkpoint.
        self.register_buffer("shift", 255 * mean, persistent=False)
        self.register_buffer("scale", 1 / (255 * std), persistent=False)
        self.shift: Tensor
        self.scale: Tensor

    def forward(self, images: Tensor) -> Tensor:
        return (images.to(self.shift.dtype) - self.shift) * self.scale


def image_data(
    name: str, validation: int, train_size: int | None, folder: str | Path | None
) -> Data:
    """The set's training images, the last `validation` of them held out, and its test images.

    `train_size` takes only the first so many of what is left to train on.
    """
    arrays = data_sets.load(name, folder)
    assert isinstance(arrays, data_sets.Images)
    count = len(arrays.train_labels)
    if not 0 <= validation < count:
        raise ValueError(
            f"validation = {validation} must leave some of {name}'s {count} training images: "
            f"choose 0 to {count - 1}"
        )
    left = count - validation
    size = left if train_size is None else train_size
    if not 1 <= size <= left:
        raise ValueError(
            f"train_size = {size}, but {left} images remain after validation = {validation}: "
            f"choose 1 to {left}, or leave it out for all"
        )
    images = torch.from_numpy(arrays.train_images)
    labels = torch.from_numpy(arrays.train_labels).long()
    held = Split(images[left:], labels[left:]) if validation else None
    test = Split(torch.from_numpy(arrays.test_images), torch.from_numpy(arrays.test_labels).long())
    return Data(Split(images[:size], labels[:size]), held, test)
