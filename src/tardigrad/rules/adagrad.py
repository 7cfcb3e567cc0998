"""AdaGrad, in torch's form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import positive
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, rate


class AdaGradState(NamedTuple):
    square_sum: Tensor


@dataclass(frozen=True)
class AdaGrad(Optimizer[AdaGradState, Nothing]):
    """u ← u + g²; θ ← θ − η g / (√u + ε).

    With one worker it equals `torch.optim.Adagrad` bit for bit.
    """

    eps: float = 1e-10

    takes_means = True
    adds = True

    def __post_init__(self) -> None:
        positive("eps", self.eps)

    def start(self, theta: Tensor, layout: Layout) -> AdaGradState:
        return AdaGradState(torch.zeros_like(theta))

    def step(
        self,
        theta: Tensor,
        state: AdaGradState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, AdaGradState, tuple[Nothing, ...]]:
        signal = combine(signals)
        square_sum = torch.addcmul(state.square_sum, signal.raw, signal.raw)
        denominator = square_sum.sqrt().add(self.eps)
        step = (-rate(signal, now) * signal.first) / denominator
        theta = torch.add(theta, step)
        return theta, AdaGradState(square_sum), tuple(owns)
