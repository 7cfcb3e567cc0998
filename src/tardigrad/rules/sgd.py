"""SGD with momentum or Nesterov momentum, in torch's form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import number, require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, mean, rate


class SgdState(NamedTuple):
    velocity: tuple[Tensor, ...]
    """v, or nothing where it is not kept."""


@dataclass(frozen=True)
class Sgd(Optimizer[SgdState, Nothing]):
    """v ← γ v + g; θ ← θ − η v, or with Nesterov θ ← θ − η (g + γ v).

    Args:
        momentum: γ, any real number; 0 keeps no v.
        nesterov: step along g + γ v.
        keep_velocity: keep v even where γ = 0 (then v is the last gradient, which Gap-Aware reads).

    With one worker it equals `torch.optim.SGD` bit for bit: `addcmul` and torch's `add_(alpha=)`
    are both fused multiply-adds, where θ − η·d would round twice.
    """

    momentum: float = 0.0
    nesterov: bool = False
    keep_velocity: bool = False

    takes_means = True

    def __post_init__(self) -> None:
        number("momentum", self.momentum)
        require(
            not self.nesterov or self.momentum != 0,
            "nesterov=True needs a momentum other than 0: set momentum=0.9",
        )

    @property
    def has_velocity(self) -> bool:
        return self.keep_velocity or self.momentum != 0

    def start(self, theta: Tensor, layout: Layout) -> SgdState:
        return SgdState((torch.zeros_like(theta),) if self.has_velocity else ())

    def step(
        self,
        theta: Tensor,
        state: SgdState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, SgdState, tuple[Nothing, ...]]:
        signal = combine(signals)
        direction = signal.first
        if self.has_velocity:
            velocity = self._velocity(state, direction)
            state = SgdState((velocity,))
            direction = (
                torch.add(direction, velocity, alpha=self.momentum) if self.nesterov else velocity
            )
        theta = torch.addcmul(theta, direction, -rate(signal, now))
        return theta, state, tuple(owns)

    def peek(
        self,
        theta: Tensor,
        state: SgdState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        grads: Sequence[Tensor],
        now: Now,
        layout: Layout,
    ) -> Tensor:
        """γ v + g, the heavy-ball step, under Nesterov too."""
        grad = mean(grads)
        return self._velocity(state, grad) if self.has_velocity else grad

    def previous(self, state: SgdState) -> Tensor:
        if not state.velocity:
            return super().previous(state)
        return state.velocity[0]

    def _velocity(self, state: SgdState, grad: Tensor) -> Tensor:
        return state.velocity[0].mul(self.momentum).add(grad)
