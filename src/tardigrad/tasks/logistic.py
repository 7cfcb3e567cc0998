"""Logistic regression on made-up data: convex, small, needs no download."""

import numpy as np
import torch
from torch import Tensor, nn

from tardigrad.core import keys
from tardigrad.core.arrays import Floats
from tardigrad.tasks.checks import at_least
from tardigrad.tasks.module import ModuleTask, initialised
from tardigrad.tasks.sampling import Sampling
from tardigrad.tasks.split import Data, Split


def logistic_regression(
    *,
    features: int = 20,
    classes: int = 2,
    margin: float = 2.0,
    batch_size: int = 16,
    sampling: Sampling = "independent",
    workers: int | None = None,
    seed: int = 0,
    train_size: int = 2000,
    validation: int = 500,
    device: str = "cpu",
    dtype: str = "float32",
) -> ModuleTask:
    """Logistic regression on keyed synthetic data: convex, quick, nothing to download.

    Features are standard normal; a true linear model with scores of standard deviation `margin`
    draws each class from its softmax, so no model reaches accuracy 1. Validation and test sets
    have `validation` samples each (0: none).

    Args:
        features: numbers in an input.
        classes: how many.
        margin: standard deviation of the true scores; the larger, the easier.
    """
    at_least("features", features, 1)
    at_least("classes", classes, 2)
    at_least("margin", margin, 0)
    at_least("train_size", train_size, 1)
    at_least("validation", validation, 0)
    samples = train_size + 2 * validation
    inputs, labels = _draw(samples, features, classes, margin, seed)
    ends = (train_size, train_size + validation, samples)
    train, valid, test = (
        Split(inputs[a:b], labels[a:b]) if b > a else None
        for a, b in zip((0, *ends[:2]), ends, strict=True)
    )
    assert train is not None
    return ModuleTask(
        initialised(lambda: nn.Linear(features, classes), seed),
        "cross_entropy",
        Data(train, valid, test),
        batch_size,
        sampling=sampling,
        workers=workers,
        seed=seed,
        device=device,
        dtype=dtype,
    )


def _draw(
    samples: int, features: int, classes: int, margin: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Inputs and classes; argmax(score + Gumbel noise) is a draw from the softmax."""
    inputs = _normal(seed, "inputs", samples, features)
    truth = _normal(seed, "truth", features, classes) * margin / np.sqrt(features)
    noise = -np.log(-np.log(keys.uniform(keys.key(seed, "labels"), np.arange(samples * classes))))
    labels = (inputs @ truth + noise.reshape(samples, classes)).argmax(1)
    return torch.from_numpy(inputs), torch.from_numpy(labels)


def _normal(seed: int, purpose: str, rows: int, columns: int) -> Floats:
    return keys.normal(keys.key(seed, purpose), np.arange(rows * columns)).reshape(rows, columns)
