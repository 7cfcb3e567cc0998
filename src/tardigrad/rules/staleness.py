"""Penalties that depend on the staleness alone."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tardigrad.core.checks import not_negative, one_of
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Nothing, Now, Push, Signal


@dataclass(frozen=True)
class StalenessAware(Correction[Nothing, Nothing]):
    """The step, or the gradient, divided by the staleness τ.

    on="step": θ ← θ − (η/τ)·step, momentum included (Zhang 2015; Gap-Aware paper, Alg. 3).
    on="gradient": g/τ goes into the optimizer (Alg. 5); Adam's second moment takes the raw g
    (Alg. 10).

    Args:
        on: what is divided by τ: the whole "step" or the "gradient".
        staleness: what τ is: "plus_one" is delay + 1, "max_one" is max(delay, 1).

    Choice, τ: delay + 1 ("plus_one"), as the Gap-Aware paper's algorithms count it and FRED's
    released code divides; FASGD's text would divide by zero. "max_one" is Zhang's max(1, delay).
    """

    on: Literal["step", "gradient"] = "step"
    staleness: Literal["plus_one", "max_one"] = "plus_one"

    takes_means = True

    def __post_init__(self) -> None:
        one_of("on", self.on, ("step", "gradient"))
        one_of("staleness", self.staleness, ("plus_one", "max_one"))

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        tau = push.staleness
        if self.staleness == "max_one":
            tau = torch.clamp(tau - 1, min=1)
        if self.on == "step":
            return Signal(push.grad, push.grad, 1 / tau), own
        return Signal(push.grad / tau, push.grad), own


@dataclass(frozen=True)
class ExponentialPenalty(Correction[Nothing, Nothing]):
    """The whole step times exp(−ρ d), d = τ − 1 the delay (Chan and Lane 2014).

    Args:
        rate: ρ.
    """

    rate: float

    takes_means = True

    def __post_init__(self) -> None:
        not_negative("rate", self.rate)

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        penalty = torch.exp((push.staleness - 1) * -self.rate)
        return Signal(push.grad, push.grad, penalty), own
