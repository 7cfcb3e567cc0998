"""Models for MNIST and Fashion-MNIST."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tardigrad.core.checks import one_of
from tardigrad.tasks.augment import Augment
from tardigrad.tasks.checks import at_least
from tardigrad.tasks.images import Normalise, Pixels, image_data
from tardigrad.tasks.module import ModuleTask, initialised
from tardigrad.tasks.sampling import Sampling
from tardigrad.tasks.structure import known_layer

SETS = ("mnist", "fashion_mnist")


def mnist_mlp(
    *,
    hidden: int = 200,
    data: str = "mnist",
    pixels: Pixels = "standard",
    batch_size: int = 8,
    sampling: Sampling = "independent",
    workers: int | None = None,
    seed: int = 0,
    validation: int = 5000,
    train_size: int | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    data_folder: str | Path | None = None,
) -> ModuleTask:
    """MNIST with the multilayer perceptron 784-200-10 (FRED's and FASGD's model).

    ReLU, log-softmax and negative log-likelihood. `data` may be "fashion_mnist". pixels="unit"
    leaves the inputs from 0 to 1, as in the data that FRED's time used; "standard" gives them mean
    0 and deviation 1.

    Args:
        hidden: units in the hidden layer.
        pixels: what inputs are scaled to, as told above.
    """
    at_least("hidden", hidden, 1)
    one_of("data", data, SETS)
    return ModuleTask(
        initialised(lambda: mlp(hidden, data, pixels), seed),
        "nll",
        image_data(data, validation, train_size, data_folder),
        batch_size,
        sampling=sampling,
        workers=workers,
        seed=seed,
        device=device,
        dtype=dtype,
    )


def mnist_cnn(
    *,
    width: int = 32,
    augment: str | Augment | None = "rotate_zoom",
    data: str = "mnist",
    batch_size: int = 128,
    sampling: Sampling = "independent",
    workers: int | None = None,
    seed: int = 0,
    validation: int = 5000,
    train_size: int | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    data_folder: str | Path | None = None,
) -> ModuleTask:
    """MNIST with a small convolutional network, weight-normalised, on turned and zoomed images.

    Four layers of 3×3 filters (`width`, `width`, 2 `width`, 2 `width`), each with ReLU and
    max-pooling (28 → 14 → 7 → 3 → 1), then a linear layer. `data` may be "fashion_mnist".

    Args:
        width: filters in the first layers.
    """
    at_least("width", width, 1)
    one_of("data", data, SETS)
    return ModuleTask(
        initialised(lambda: cnn(width, data), seed),
        "nll",
        image_data(data, validation, train_size, data_folder),
        batch_size,
        sampling=sampling,
        workers=workers,
        seed=seed,
        augment=augment,
        device=device,
        dtype=dtype,
    )


def mlp(hidden: int, data: str = "mnist", pixels: Pixels = "standard") -> nn.Module:
    return nn.Sequential(
        Normalise(data, pixels),
        nn.Flatten(),
        nn.Linear(784, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
        nn.LogSoftmax(dim=-1),
    )


@known_layer(takes=4, gives=4)
class NormedConv(nn.Conv2d):
    """3×3 filters w = gain · v / ‖v‖ (Salimans and Kingma 2016), the gain starting at ‖v‖.

    Written out because torch's own parametrisation can be neither pickled nor vmapped.
    """

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__(channels, filters, 3, padding=1)
        self.gain = nn.Parameter(self._length().detach())

    def forward(self, x: Tensor) -> Tensor:
        filters = self.weight * (self.gain / self._length())
        return F.conv2d(x, filters, self.bias, padding=1)

    def _length(self) -> Tensor:
        return torch.sqrt(self.weight.square().sum((1, 2, 3), keepdim=True))


def cnn(width: int, data: str = "mnist") -> nn.Module:
    layers: list[nn.Module] = [Normalise(data)]
    channels = 1
    for filters in (width, width, 2 * width, 2 * width):
        layers += [NormedConv(channels, filters), nn.ReLU(), nn.MaxPool2d(2)]
        channels = filters
    layers += [nn.Flatten(), nn.Linear(channels, 10), nn.LogSoftmax(dim=-1)]
    return nn.Sequential(*layers)
