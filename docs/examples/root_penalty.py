"""A rule of one's own: divide each gradient by the root of its staleness."""

from dataclasses import dataclass

from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.rules import Correction, Nothing, Now, Push, Sgd, Signal


@dataclass(frozen=True)
class RootPenalty(Correction[Nothing, Nothing]):
    """g / τ^power."""

    power: float = 0.5

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        return Signal(push.grad / push.staleness**self.power, push.grad), own


def root_penalty(lr: float, power: float = 0.5, momentum: float = 0.0) -> tg.Rule:
    """v ← γ v + g/√τ; θ ← θ − η v"""
    return tg.Rule(lr, Sgd(momentum), RootPenalty(power))
