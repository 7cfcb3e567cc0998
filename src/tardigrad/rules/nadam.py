"""NAdam: Adam with Nesterov's momentum, in torch's form."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.checks import not_negative
from tardigrad.core.layout import Layout
from tardigrad.rules.adam import AdamState, check_betas
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, rate


@dataclass(frozen=True)
class NAdam(Optimizer[AdamState, Nothing]):
    """μ_k = β1 (1 − 0.96^(k ψ)/2); θ ← θ − η ((1−μ_k) g / (1−Π_k) + μ_{k+1} m / (1−Π_{k+1})) / d.

    m ← β1 m + (1−β1) g; u ← β2 u + (1−β2) g²; d = √(u / (1−β2^k)) + ε; Π_k = μ_1 ⋯ μ_k.
    ψ is `momentum_decay`. Under staleness m and the gradient beside it are the penalised one, and u
    takes the raw one, as in `Adam`. With one worker it equals `torch.optim.NAdam` bit for bit.

    Args:
        momentum_decay: ψ, how fast μ grows to β1.

    Dozat 2016, Alg. 2, with the schedule of μ that torch took from Keras.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum_decay: float = 4e-3

    takes_means = True
    adds = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", check_betas(self.betas, self.eps))
        not_negative("momentum_decay", self.momentum_decay)

    def start(self, theta: Tensor, layout: Layout) -> AdamState:
        return AdamState(torch.zeros_like(theta), torch.zeros_like(theta))

    def host(self, count: int) -> tuple[float, ...]:
        now, ahead = self._momentum(count), self._momentum(count + 1)
        product = _products(self).upto(count)
        return 1 - now, 1 - product, ahead, 1 - product * ahead, 1 - self.betas[1] ** count

    def _momentum(self, count: int) -> float:
        """μ_k."""
        return float(self.betas[0] * (1.0 - 0.5 * (0.96 ** (count * self.momentum_decay))))

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
        of_gradient, product, ahead, product_ahead, square_bias = now.optimizer
        down = -rate(signal, now)
        mean, mean_square = moments = state.after(signal, self.betas)
        denominator = (mean_square / square_bias).sqrt().add(self.eps)
        # torch's addcdiv(value=) multiplies first and divides then; so do we, to the bit.
        theta = torch.add(theta, (down * of_gradient / product * signal.first) / denominator)
        theta = torch.add(theta, (down * ahead / product_ahead * mean) / denominator)
        return theta, moments, tuple(owns)


class _Products:
    """Π_k for k = 0, 1, …, multiplied in single precision, as torch keeps it."""

    def __init__(self, optimizer: NAdam) -> None:
        self._optimizer, self._found = optimizer, [np.float32(1.0)]

    def upto(self, count: int) -> float:
        while len(self._found) <= count:
            momentum = self._optimizer._momentum(len(self._found))
            self._found.append(self._found[-1] * np.float32(momentum))
        return float(self._found[count])


@lru_cache(maxsize=16)
def _products(optimizer: NAdam) -> _Products:
    return _Products(optimizer)
