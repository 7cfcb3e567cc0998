"""Delay-adaptive rates: a step in proportion to n / d where a gradient is very late."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tardigrad.core.checks import count, positive
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Nothing, Now, Push, Signal
from tardigrad.rules.rates import Rate
from tardigrad.rules.rule import Rule
from tardigrad.rules.sgd import Sgd


@dataclass(frozen=True)
class DelayAdaptive(Correction[Nothing, Nothing]):
    """The whole step times n / max(n, d).

    Args:
        threshold: n, the largest delay d that is not penalised: the number of workers (Mishchenko),
            or τ_C (Koloskova).

    Mishchenko, Bach, Even and Woodworth 2022, Asynchronous SGD Beats Minibatch SGD Under Arbitrary
    Delays; Koloskova, Stich and Jaggi 2022, Sharper Convergence Guarantees for Asynchronous SGD.
    """

    threshold: float

    takes_means = True

    def __post_init__(self) -> None:
        positive("threshold", self.threshold)

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        scale = self.threshold / torch.clamp(push.staleness - 1, min=self.threshold)
        return Signal(push.grad, push.grad, scale), own


def delay_adaptive(
    lr: Rate,
    workers: int,
    threshold: float | None = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Rule:
    """v ← γ v + g; θ ← θ − η n / max(n, d) v

    Mishchenko et al. 2022: n is the number of workers. Koloskova et al. 2022: η while d ≤ τ_C, the
    `threshold`, and η τ_C / d beyond it, which is the same with n = τ_C; their other choice, to
    drop what is later, is a policy: `BoundedDelay(τ_C)`. A threshold that no delay exceeds makes it
    `sgd`.

    Args:
        workers: n; in a file it need not be said.
        threshold: τ_C, in n's place.
    """
    count("workers", workers)
    n = workers if threshold is None else threshold
    return Rule(lr, Sgd(momentum, nesterov), DelayAdaptive(n), weight_decay=weight_decay)
