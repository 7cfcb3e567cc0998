"""Weights of late gradients, s(d) of the delay d, as corrections before any optimizer."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from tardigrad.core.checks import not_negative, require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Nothing, Now, Push, Signal
from tardigrad.rules.rates import Rate
from tardigrad.rules.rule import Rule
from tardigrad.rules.sgd import Sgd


class StalenessWeight(Correction[Nothing, Nothing]):
    """s(d) g, and then any optimizer; s(0) = 1.

    In a group each gradient has its own weight, and the sum is divided by how many there are, not
    by the sum of the weights: a group of late gradients makes a smaller step (FedBuff).
    Momentum takes the weighted gradient; second moments, as Adam's, take the raw one.
    """

    @abstractmethod
    def of(self, delay: Tensor) -> Tensor:
        """s(d), 0-dim as d is."""

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        return Signal(push.grad * self.of(push.staleness - 1), push.grad), own


@dataclass(frozen=True)
class PolynomialWeight(StalenessWeight):
    """s(d) = (d + 1)^−a.

    Args:
        a: how fast it falls; 0 is no weight, 1 is `StalenessAware` on the gradient.

    Xie, Koyejo and Gupta 2019, Asynchronous Federated Optimization. FedBuff takes a = 1/2.
    """

    a: float = 0.5

    takes_means = True

    def __post_init__(self) -> None:
        not_negative("a", self.a)

    def of(self, delay: Tensor) -> Tensor:
        return (delay + 1) ** -self.a


@dataclass(frozen=True)
class HingeWeight(StalenessWeight):
    """s(d) = 1 where d ≤ b, else 1 / (a (d − b) + 1).

    Args:
        a: how fast it falls behind b; 0 is no weight.
        b: the largest delay that weighs as much as none.

    Xie, Koyejo and Gupta 2019, Asynchronous Federated Optimization. Trap: some later code leaves
    the + 1 out, and then weighs what is just behind b more than what is before it where a < 1.
    """

    a: float = 10.0
    b: float = 4.0

    takes_means = True

    def __post_init__(self) -> None:
        not_negative("a", self.a)
        not_negative("b", self.b)

    def of(self, delay: Tensor) -> Tensor:
        return 1 / (torch.clamp(delay - self.b, min=0) * self.a + 1)


@dataclass(frozen=True)
class ConstantWeight(StalenessWeight):
    """s(d) = 1, however late."""

    takes_means = True

    def of(self, delay: Tensor) -> Tensor:
        return torch.ones_like(delay)


polynomial, hinge, constant = PolynomialWeight, HingeWeight, ConstantWeight
BY_DEFAULT = PolynomialWeight()

WEIGHTS: dict[str, type[StalenessWeight]] = {
    "polynomial": PolynomialWeight,
    "hinge": HingeWeight,
    "constant": ConstantWeight,
}


def check_weight(weight: object) -> None:
    require(
        isinstance(weight, StalenessWeight),
        f"weight must be a weight of delays such as rules.weights.polynomial(0.5), got {weight!r}",
    )


def staleness_weighted(
    lr: Rate,
    weight: StalenessWeight = BY_DEFAULT,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Rule:
    """v ← γ v + s(d) g; θ ← θ − η v

    With `SoftSync(size=10, wait=False)` it is FedBuff: θ ← θ − η · mean of s(d_i) g_i
    (Nguyen et al. 2022). Where nothing is late it is `sgd`.

    Args:
        weight: s(d): polynomial, (d + 1)^−a; hinge, 1 where d ≤ b, else 1 / (a (d − b) + 1); or
            constant, 1.
    """
    check_weight(weight)
    return Rule(lr, Sgd(momentum, nesterov), weight, weight_decay=weight_decay)
