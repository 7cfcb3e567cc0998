"""Small tasks in float64, each made once: what was traced or compiled serves all its cases."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tardigrad as tg
from tardigrad.core import keys
from tardigrad.core.layout import Layout
from tardigrad.tasks import Data, Split, Task, quadratic
from tardigrad.tasks.module import initialised
from tests.fuzz.fuzz_draws import Draws

FEATURES, CLASSES, SAMPLES, BATCH = 6, 3, 60, 4
LAYOUT = Layout(("a", "b", "c", "d"), ((3, 2), (4,), (2, 2), (1,)))
"""Four tensors, so that up to four shards can have whole ones."""
COMPILED: dict[str, Any] = {"kind": "module", "loss": "cross_entropy"}
KINDS = ("quadratic", "gradient only", "loss and gradient", "module", "module", "module")


def draw_task(seed: int, workers: int) -> dict[str, Any]:
    """Arguments of `task`."""
    draw = Draws(seed, "task")
    kind = draw.choice(KINDS)
    if kind != "module":
        return {"kind": kind}
    out: dict[str, Any] = {"kind": kind, "loss": draw.choice(list(LOSSES))}
    layer = draw.choice(["", "", "", "batch_norm", "dropout", "F.dropout", "convolution"])
    if layer:
        out["layer"] = layer
    out["seed"] = draw.integer(0, 2)
    out["sampling"] = draw.choice(["independent", "epoch", "partition"])
    if out["sampling"] == "partition":
        out["workers"] = workers
    if draw.chance(0.15):
        out["augment"] = True
    if draw.chance(0.15):
        out["pixels"] = True
    return out


@cache
def task(kind: str, compiled: bool = False, **options: Any) -> Task:
    """`compiled` only tells apart tasks whose gradients torch compiles from those it does not."""
    if kind == "module":
        return _module_task(**options)
    if kind == "quadratic":
        return quadratic(dimension=11, noise=0.1, dtype="float64")
    theta = torch.linspace(-1.0, 1.5, LAYOUT.size, dtype=torch.float64)
    function = _gradient_only if kind == "gradient only" else _loss_and_gradient
    return tg.FunctionTask(theta, function, layout=LAYOUT)


def _gradient_only(view: Tensor, worker: int, step: int) -> Tensor:
    return torch.sin(view) + 0.1 * _noise(view, worker, step)


def _loss_and_gradient(view: Tensor, worker: int, step: int) -> tuple[Tensor, Tensor]:
    away = view - 0.1 * _noise(view, worker, step)
    return torch.log(torch.cosh(away)).sum(), torch.tanh(away)


def _noise(view: Tensor, worker: int, step: int) -> Tensor:
    drawn = keys.normal(keys.key(0, "noise", worker), step * len(view) + np.arange(len(view)))
    return torch.as_tensor(drawn, dtype=view.dtype)


# Losses: torch's by name, and what users write.


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    """Weighs samples by what else is in the batch; the last class is in few batches."""
    weights = torch.tensor([1.0, 1.0, 9.0], dtype=outputs.dtype)
    return F.cross_entropy(outputs, targets, weight=weights)


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, label_smoothing=0.1)


def worst(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of a whole batch, not a mean over its samples."""
    return torch.logsumexp(F.cross_entropy(outputs, targets, reduction="none"), 0)


LOSSES: dict[str, str | Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": "cross_entropy",
    "nll": "nll",
    "mse": "mse",
    "weighted": weighted,
    "smoothed": smoothed,
    "worst": worst,
}


class _Pixels(nn.Module):
    """Bytes as numbers in [0, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float64) / 255


class _Drops(nn.Module):
    """Randomness that is no layer."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.3, training=self.training)


def _module_task(
    loss: str,
    layer: str = "",
    sampling: str = "independent",
    workers: int | None = None,
    seed: int = 0,
    augment: bool = False,
    pixels: bool = False,
) -> tg.ModuleTask:
    def make() -> nn.Module:
        # Before BatchNorm a bias has no gradient but rounding, which Adam would make steps of.
        first: list[nn.Module] = [nn.Linear(FEATURES, 5, bias=layer != "batch_norm")]
        if layer == "convolution":
            first = [nn.Unflatten(1, (1, FEATURES)), nn.Conv1d(1, 2, 3), nn.Flatten()]
        middle: dict[str, list[nn.Module]] = {
            "batch_norm": [nn.BatchNorm1d(5)],
            "dropout": [nn.Dropout(0.3)],
            "F.dropout": [_Drops()],
        }
        width = 8 if layer == "convolution" else 5
        last: list[nn.Module] = [nn.Tanh(), nn.Linear(width, CLASSES)]
        last += [nn.LogSoftmax(1)] if loss == "nll" else []
        before: list[nn.Module] = [_Pixels()] if pixels else []
        return nn.Sequential(*before, *first, *middle.get(layer, []), *last)

    augmented: Any = (lambda x, stream: _shifted(x, stream, pixels)) if augment else None
    return tg.ModuleTask(
        initialised(make, seed),
        LOSSES[loss],
        _data(pixels, loss == "mse"),
        BATCH,
        sampling=sampling,  # type: ignore[arg-type]
        workers=workers,
        seed=seed,
        augment=augmented,
        dtype="float64",
    )


def _shifted(inputs: Tensor, stream: int, pixels: bool) -> Tensor:
    if pixels:
        return inputs.flip(1) if keys.uniform(stream, 0) < 0.5 else inputs
    return inputs + 0.1 * torch.as_tensor(keys.normal(stream, np.arange(inputs.numel()))).view_as(
        inputs
    )


@cache
def _data(pixels: bool, regression: bool) -> Data:
    """Keyed samples, two of them of the last class."""
    stream = keys.key(0, "samples")
    drawn = keys.normal(stream, np.arange((SAMPLES + 12) * FEATURES)).reshape(-1, FEATURES)
    inputs = torch.as_tensor(drawn)
    labels = (inputs[:, 0] > 0).long()
    labels[[20, 40]] = 2
    targets = F.one_hot(labels, CLASSES).double() if regression else labels
    if pixels:
        inputs = ((inputs + 3).clamp(0, 6) * 42).to(torch.uint8)
    return Data(
        Split(inputs[:SAMPLES], targets[:SAMPLES]), Split(inputs[SAMPLES:], targets[SAMPLES:])
    )
