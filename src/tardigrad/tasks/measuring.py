"""Measuring a model on a split: the mean loss, accuracy where targets are classes, and metrics of
one's own. Targets that torch's losses leave out count for neither loss nor accuracy."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tardigrad.core.checks import require
from tardigrad.tasks.losses import LEFT_OUT, hits, left_out, targets_counted
from tardigrad.tasks.objective import LABELS, Objective
from tardigrad.tasks.samples import Samples, mapped, take
from tardigrad.tasks.split import Split

Metric = Callable[[Any, Any], float]
"""metric(outputs, targets) of a whole split -> number."""
CHUNK = 1000
"""Samples per forward pass in evaluation: bounds memory, and does not depend on the batch size."""
LARGE_CHUNK = 32
"""The same for models with a loss of their own, which are larger."""


def check_metrics(metrics: Mapping[str, Metric] | None) -> dict[str, Metric]:
    found = dict(metrics or {})
    for name, metric in found.items():
        require(
            isinstance(name, str) and callable(metric),
            f"metrics are functions (outputs, targets) -> number by name, got {name!r}: {metric!r}",
        )
        require(name != "loss", "a metric cannot be called 'loss', which is measured anyway")
    return found


def measure(
    module: nn.Module, objective: Objective, data: Split, metrics: Mapping[str, Metric]
) -> dict[str, float]:
    """All that is measured, of a module that is in evaluation mode."""
    # Asked for once, at the end: a GPU would wait at every question.
    losses, right, judged = list[Tensor](), list[Tensor](), list[Tensor]()
    sizes = list[int]()
    shares = list[tuple[Tensor, int]]()  # of targets that the loss counts, of how many
    kept = list[Samples]()
    chunk = LARGE_CHUNK if objective.function is None else CHUNK
    known = left_out(objective.function)
    skipped = LEFT_OUT if known is None else known
    for at in range(0, len(data), chunk):
        # Copied, so that bits do not depend on where the data happens to lie.
        inputs, targets = (
            take(part, slice(at, at + chunk)) for part in (data.inputs, data.targets)
        )
        outputs, loss = objective(module, inputs, targets)
        losses.append(loss)
        sizes.append(min(chunk, len(data) - at))
        count = targets_counted(objective.function, targets)
        if count is not None:
            shares.append((count, targets.numel()))
        classes = labels(inputs, targets)
        hit = _hits(outputs, classes)
        if hit is not None:
            counts = classes != skipped
            right.append((hit & counts).sum())
            judged.append(counts.sum())
        if metrics:
            kept.append(_of_samples(outputs, sizes[-1]))
    found = {"loss": _mean(torch.stack(losses).tolist(), _weights(sizes, shares))}
    if right and (classes_judged := sum(torch.stack(judged).tolist())):
        found["accuracy"] = sum(torch.stack(right).tolist()) / classes_judged
    if metrics:
        outputs = mapped(lambda *parts: torch.cat(parts), *kept)
        for name, metric in metrics.items():
            found[name] = _value(name, metric, outputs, labels(data.inputs, data.targets))
    return found


def _weights(sizes: Sequence[int], shares: Sequence[tuple[Tensor, int]]) -> list[float]:
    """What the loss of each chunk counts for: its samples, less what the loss leaves out."""
    if not shares:
        return list(map(float, sizes))
    counts = torch.stack([count for count, _ in shares]).tolist()
    wholes = [whole for _, whole in shares]
    return [size * n / of for size, n, of in zip(sizes, counts, wholes, strict=True)]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """NaN where nothing counts."""
    total, whole = 0.0, sum(weights)
    for value, weight in zip(values, weights, strict=True):
        if weight:  # the mean of nothing is NaN
            total += value * weight
    return total / whole if whole else math.nan


def labels(inputs: Samples, targets: Samples) -> Samples:
    """The targets, which may be among the inputs."""
    if targets is None and isinstance(inputs, Mapping):
        return inputs.get(LABELS)
    return targets


def _hits(outputs: Any, targets: Samples) -> Tensor | None:
    if not isinstance(targets, Tensor):
        return None
    if isinstance(outputs, Tensor):
        return hits(outputs, targets)
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else None
    # Of one class a sample alone: a language model's labels are those of the place before.
    return hits(logits, targets) if isinstance(logits, Tensor) and targets.dim() == 1 else None


def _of_samples(outputs: Any, count: int) -> Samples:
    """What of the outputs is one row a sample."""

    def rows(value: Any) -> bool:
        return isinstance(value, Tensor) and value.dim() > 0 and len(value) == count

    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(outputs, Mapping):
        return {name: value for name, value in outputs.items() if rows(value)}
    if isinstance(outputs, tuple):
        return tuple(value for value in outputs if rows(value))
    return {name: value for name, value in vars(outputs).items() if rows(value)}


def _value(name: str, metric: Metric, outputs: Any, targets: Samples) -> float:
    try:
        value: Any = metric(outputs, targets)
    except Exception as error:
        raise ValueError(f"metric {name!r} failed ({type(error).__name__}: {error})") from error
    one = value.item() if isinstance(value, Tensor | np.generic) and value.shape == () else value
    require(
        isinstance(one, int | float) and not isinstance(one, bool),
        f"metric {name!r} returned a {type(value).__name__}: it must return a number",
    )
    return float(one)
