"""The task whose every constant is known: a noisy quadratic bowl."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from tardigrad.core import keys
from tardigrad.tasks.checks import at_least
from tardigrad.tasks.function import FunctionTask
from tardigrad.tasks.precision import device_of, dtype_of


def quadratic(
    dimension: int = 100,
    condition: float = 10.0,
    noise: float = 0.0,
    *,
    seed: int = 0,
    device: str = "cpu",
    dtype: str = "float32",
) -> FunctionTask:
    """A quadratic bowl ½ Σ λ_i θ_i² with Gaussian gradient noise, minimum 0 at the origin.

    The curvatures λ_i run geometrically from 1 / `condition` to 1; the start is a keyed standard
    normal point; every gradient component gets noise of standard deviation `noise`, keyed by
    worker and step. Metrics: "loss" (exact, without noise) and "distance" to the minimum.

    Args:
        dimension: how many parameters.
        condition: the largest curvature over the smallest.
        noise: standard deviation of what is added to each component of a gradient.
    """
    at_least("dimension", dimension, 1)
    at_least("condition", condition, 1)
    at_least("noise", noise, 0)
    curvature, start = (
        torch.as_tensor(numbers, device=device_of(device), dtype=dtype_of(dtype))
        for numbers in (
            condition ** -np.linspace(0.0, 1.0, dimension),
            keys.normal(keys.key(seed, "init"), np.arange(dimension)),
        )
    )
    bowl = _Bowl(curvature, noise, seed)
    return FunctionTask(start, bowl, evaluate=bowl.measure, stochastic=False)


class _Bowl:
    """A class, not a closure, so that the task can be sent to another process."""

    def __init__(self, curvature: Tensor, noise: float, seed: int) -> None:
        self._curvature, self._noise, self._seed = curvature, noise, seed

    def __call__(self, view: Tensor, worker: int, step: int) -> tuple[Tensor, Tensor]:
        grad = self._curvature * view
        loss = 0.5 * torch.dot(grad, view)
        if self._noise > 0:
            stream = keys.key(self._seed, "noise", worker)
            drawn = keys.normal(stream, step * len(view) + np.arange(len(view)))
            grad = grad + self._noise * torch.as_tensor(drawn, dtype=view.dtype, device=view.device)
        return loss, grad

    def measure(self, params: Tensor) -> Mapping[str, float]:
        loss = 0.5 * torch.dot(self._curvature * params, params)
        return {"loss": loss.item(), "distance": params.norm().item()}
