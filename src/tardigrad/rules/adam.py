"""Adam, in torch's form; the penalised gradient goes into the first moment only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import fraction, positive, require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, rate


class AdamState(NamedTuple):
    mean: Tensor
    mean_square: Tensor

    def after(self, signal: Signal, betas: tuple[float, float]) -> "AdamState":
        """m ← β1 m + (1−β1) g; u ← β2 u + (1−β2) g²"""
        mean = torch.lerp(self.mean, signal.first, 1 - betas[0])
        square = self.mean_square.mul(betas[1])
        return AdamState(mean, torch.addcmul(square, signal.raw, signal.raw, value=1 - betas[1]))


@dataclass(frozen=True)
class Adam(Optimizer[AdamState, Nothing]):
    """m ← β1 m + (1−β1) g; u ← β2 u + (1−β2) g²; θ ← θ − η m̂ / (√û + ε), bias-corrected.

    Gap-Aware paper, Alg. 9; under staleness (Alg. 10, 11) m takes the penalised gradient and u the
    raw one. With one worker it equals `torch.optim.Adam` bit for bit.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    takes_means = True
    adds = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", check_betas(self.betas, self.eps))

    def start(self, theta: Tensor, layout: Layout) -> AdamState:
        return AdamState(torch.zeros_like(theta), torch.zeros_like(theta))

    def host(self, count: int) -> tuple[float, ...]:
        return 1 - self.betas[0] ** count, (1 - self.betas[1] ** count) ** 0.5

    def step(
        self,
        theta: Tensor,
        state: AdamState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, AdamState, tuple[Nothing, ...]]:
        signal = combine(signals)
        mean_bias, root_bias = now.optimizer
        mean, mean_square = moments = state.after(signal, self.betas)
        denominator = (mean_square.sqrt() / root_bias).add(self.eps)
        # torch's addcdiv(value=) multiplies first and divides then; so do we, to the bit.
        step = (-(rate(signal, now) / mean_bias) * mean) / denominator
        theta = torch.add(theta, step)
        return theta, moments, tuple(owns)


def check_betas(betas: Sequence[float], eps: float) -> tuple[float, float]:
    """The two decays, checked as ε is."""
    require(
        isinstance(betas, tuple | list) and len(betas) == 2,
        f"betas must be two decays such as (0.9, 0.999), got {betas!r}",
    )
    fraction("betas[0]", betas[0])
    fraction("betas[1]", betas[1])
    positive("eps", eps)
    return betas[0], betas[1]
