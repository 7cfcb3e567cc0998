"""FASGD: divide by a running estimate of the gradient's deviation, and by the staleness."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import fraction, one_of, positive
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Nothing, Now, Peek, Push, Signal

MAGNITUDE_OFFSET = 0.001


class FasgdState(NamedTuple):
    """n, b and v of the paper; for "magnitude" `deviation` is m, the other two are empty."""

    mean_square: Tensor
    mean: Tensor
    deviation: Tensor


@dataclass(frozen=True)
class Fasgd(Correction[FasgdState, Nothing]):
    """n ← γ n + (1−γ) g²; b ← γ b + (1−γ) g; s = √(n − b² + ε); v ← β v + (1−β) s; g / (v τ).

    Start: n = b = 0, v = 1.

    Args:
        gamma: γ, the decay of the running means of g and g².
        beta: β, the decay of v.
        eps: ε under the root.
        estimator: of the deviation: "std", "printed" or "magnitude", told under Choices.

    Choices:
        γ = β = 0.9, ε = 1e-4, and n − b² clamped at 0 before ε: the paper gives none of these.
        estimator="std" averages s. The printed eq. 6 averages 1/s and eq. 7 then divides by it,
        which multiplies by the deviation and contradicts the text ("divide by the standard
        deviation"); on MNIST it barely moves. "printed" gives eq. 6 literally; "magnitude" what the
        authors' released code does: m ← γ m + (1−γ)|g| from 0, g / (τ (m + 0.001)).

    Odena 2016, "Faster Asynchronous SGD", eq. 4–8.
    """

    gamma: float = 0.9
    beta: float = 0.9
    eps: float = 1e-4
    estimator: Literal["std", "printed", "magnitude"] = "std"

    takes_means = True

    def __post_init__(self) -> None:
        fraction("gamma", self.gamma)
        fraction("beta", self.beta)
        positive("eps", self.eps)
        one_of("estimator", self.estimator, ("std", "printed", "magnitude"))

    def start(self, theta: Tensor, layout: Layout) -> FasgdState:
        if self.estimator == "magnitude":
            return FasgdState(theta.new_empty(0), theta.new_empty(0), torch.zeros_like(theta))
        zero = torch.zeros_like(theta)
        return FasgdState(zero, zero.clone(), torch.ones_like(theta))

    def observe(
        self, state: FasgdState, grad: Tensor, peek: Peek, now: Now, layout: Layout
    ) -> FasgdState:
        if self.estimator == "magnitude":
            return state._replace(deviation=_average(state.deviation, grad.abs(), self.gamma))
        mean_square = _average(state.mean_square, grad * grad, self.gamma)
        mean = _average(state.mean, grad, self.gamma)
        s = torch.sqrt(torch.clamp(mean_square - mean * mean, min=0) + self.eps)
        spread = s if self.estimator == "std" else 1 / s
        return FasgdState(mean_square, mean, _average(state.deviation, spread, self.beta))

    def correct(
        self, theta: Tensor, state: FasgdState, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        offset = MAGNITUDE_OFFSET if self.estimator == "magnitude" else 0.0
        scale = state.deviation + offset if offset else state.deviation
        return Signal(push.grad / (scale * push.staleness), push.grad), own

    def deviation(self, state: FasgdState) -> Tensor:
        return state.deviation


def _average(old: Tensor, new: Tensor, decay: float) -> Tensor:
    return old * decay + new * (1 - decay)
