"""Models for MNIST and Fashion-MNIST."""

from pathlib import Path

from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tardigrad.tasks.augment import Augment
from tardigrad.tasks.checks import at_least, one_of
from tardigrad.tasks.images import Normalise, image_data
from tardigrad.tasks.module import ModuleTask, initialised
from tardigrad.tasks.sampling import Sampling

SETS = ("mnist", "fashion_mnist")


def mnist_mlp(
    *,
    hidden: int = 200,
    data: str = "mnist",
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

    ReLU, log-softmax and negative log-likelihood. `data` may be "fashion_mnist".
    """
    at_least("hidden", hidden, 1)
    one_of("data", data, SETS)
    return ModuleTask(
        initialised(lambda: mlp(hidden, data), seed),
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


def mlp(hidden: int, data: str = "mnist") -> nn.Module:
    return nn.Sequential(
        Normalise(data),
        nn.Flatten(),
        nn.Linear(784, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
        nn.LogSoftmax(dim=-1),
    )


def cnn(width: int, data: str = "mnist") -> nn.Module:
    layers: list[nn.Module] = [Normalise(data)]
    channels = 1
    for filters in (width, width, 2 * width, 2 * width):
        conv = nn.Conv2d(channels, filters, 3, padding=1)
        layers += [weight_norm(conv), nn.ReLU(), nn.MaxPool2d(2)]
        channels = filters
    layers += [nn.Flatten(), weight_norm(nn.Linear(channels, 10)), nn.LogSoftmax(dim=-1)]
    return nn.Sequential(*layers)
