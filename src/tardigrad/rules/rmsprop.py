"""RMSProp with momentum, in torch's form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import fraction, number, positive
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, rate


class RmsPropState(NamedTuple):
    mean_square: Tensor
    velocity: tuple[Tensor, ...]
    """The momentum buffer, or nothing where momentum is 0."""


@dataclass(frozen=True)
class RmsProp(Optimizer[RmsPropState, Nothing]):
    """u ← α u + (1−α) g²; v ← γ v + g/(√u + ε); θ ← θ − η v.

    The backup-workers paper uses α = γ = 0.9 (0.95 for PixelCNN). With one worker it equals
    `torch.optim.RMSprop` bit for bit.
    """

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0

    takes_means = True
    adds = True

    def __post_init__(self) -> None:
        fraction("alpha", self.alpha)
        positive("eps", self.eps)
        number("momentum", self.momentum)

    def start(self, theta: Tensor, layout: Layout) -> RmsPropState:
        velocity = (torch.zeros_like(theta),) if self.momentum else ()
        return RmsPropState(torch.zeros_like(theta), velocity)

    def step(
        self,
        theta: Tensor,
        state: RmsPropState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, RmsPropState, tuple[Nothing, ...]]:
        signal = combine(signals)
        lr = rate(signal, now)
        mean_square = torch.addcmul(
            state.mean_square.mul(self.alpha), signal.raw, signal.raw, value=1 - self.alpha
        )
        denominator = mean_square.sqrt().add(self.eps)
        if not self.momentum:
            theta = torch.add(theta, (-lr * signal.first) / denominator)
            return theta, RmsPropState(mean_square, ()), tuple(owns)
        velocity = state.velocity[0].mul(self.momentum) + signal.first / denominator
        theta = torch.addcmul(theta, velocity, -lr)
        return theta, RmsPropState(mean_square, (velocity,)), tuple(owns)

    def previous(self, state: RmsPropState) -> Tensor:
        return state.velocity[0] if state.velocity else super().previous(state)
