"""PipeMare's rates: smaller steps for late gradients at the beginning of a run."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tardigrad.core.checks import positive
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Nothing, Now, Push, Signal
from tardigrad.rules.rates import Rate
from tardigrad.rules.rule import Rule
from tardigrad.rules.sgd import Sgd


@dataclass(frozen=True)
class PipeMare(Correction[Nothing, Nothing]):
    """The whole step divided by max(1, d)^p, p = 1 − min(k / K, 1); k updates have been made.

    A correction rather than a rate, because each gradient has its own delay d.

    Args:
        updates: K, after which it is no correction.

    Trap: this is the paper's T1 alone. Its T2, which corrects the weights of the backward pass for
    those of the forward pass, has no counterpart where a gradient is computed at one view.

    Yang et al. 2021, PipeMare: Asynchronous Pipeline Parallel DNN Training.
    """

    updates: float

    takes_means = True

    def __post_init__(self) -> None:
        positive("updates", self.updates)

    def host(self, count: int) -> tuple[float, ...]:
        return (min((count - 1) / self.updates, 1.0) - 1.0,)

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        (power,) = now.correction
        return Signal(push.grad, push.grad, torch.clamp(push.staleness - 1, min=1) ** power), own


def pipemare(
    lr: Rate,
    updates: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Rule:
    """v ← γ v + g; θ ← θ − η / max(1, d)^(1 − min(k/K, 1)) v

    Yang et al. 2021, T1 alone. After K updates, and where d ≤ 1, it is `sgd`.

    Args:
        updates: K, over how many updates the penalty fades.
    """
    return Rule(lr, Sgd(momentum, nesterov), PipeMare(updates), weight_decay=weight_decay)
