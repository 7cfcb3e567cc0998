"""Schedule-free SGD: gradients between the iterate and its average, which is what is evaluated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import number, require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, rate
from tardigrad.rules.rates import Rate
from tardigrad.rules.rule import Rule


class ScheduleFreeState(NamedTuple):
    iterate: Tensor
    """z"""


@dataclass(frozen=True)
class ScheduleFree(Optimizer[ScheduleFreeState, Nothing]):
    """z ← z − η g; x ← (1 − 1/k) x + z/k; sent: y = (1 − β) z + β x. x is the server's θ.

    k counts updates from 1, and x = z = θ0 at first. θ is what is evaluated, saved and averaged by
    `ema`; workers compute at y.

    Args:
        beta: β, from 0 (Polyak's average: gradients at z) to 1 (primal averaging: at x).

    Departures: all z weigh the same in x. The authors' code weighs them by the square of the
    largest rate so far, which is the same without a warm-up. Weight decay is of x, as that of every
    rule is of the server's θ; theirs is of y.

    Trap: gaps are distances to θ = x, which is not what was sent, so gap-aware corrections and
    delay compensation see one even where nothing is late.

    Defazio et al. 2024, The Road Less Scheduled.
    """

    beta: float = 0.9

    def __post_init__(self) -> None:
        require(0 <= number("beta", self.beta) <= 1, f"beta must be in [0, 1], got {self.beta!r}")

    def start(self, theta: Tensor, layout: Layout) -> ScheduleFreeState:
        return ScheduleFreeState(theta.clone())

    def host(self, count: int) -> tuple[float, ...]:
        return (1 / count,)

    def step(
        self,
        theta: Tensor,
        state: ScheduleFreeState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, ScheduleFreeState, tuple[Nothing, ...]]:
        signal = combine(signals)
        (share,) = now.optimizer
        iterate = torch.addcmul(state.iterate, signal.first, -rate(signal, now))
        return theta * (1 - share) + iterate * share, ScheduleFreeState(iterate), tuple(owns)

    def send(self, theta: Tensor, state: ScheduleFreeState, now: Now, gradients: int) -> Tensor:
        return state.iterate * (1 - self.beta) + theta * self.beta


def schedule_free(lr: Rate, beta: float = 0.9, weight_decay: float = 0.0) -> Rule:
    """z ← z − η g; θ = x ← (1 − 1/k) x + z/k, evaluated; sent: y = (1 − β) z + β x

    Defazio et al. 2024; the choices are told at `ScheduleFree`.
    """
    return Rule(lr, ScheduleFree(beta), weight_decay=weight_decay)
