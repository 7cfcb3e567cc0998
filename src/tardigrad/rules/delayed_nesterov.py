"""Delayed Nesterov: momentum moves once in N pushes, by their mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import count, number, require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, rate
from tardigrad.rules.rates import Rate
from tardigrad.rules.rule import Rule


class DelayedNesterovState(NamedTuple):
    velocity: Tensor
    """m"""
    gathered: Tensor
    """Δ: the sum of what came since m last moved."""


@dataclass(frozen=True)
class DelayedNesterov(Optimizer[DelayedNesterovState, Nothing]):
    """Δ ← Δ + g; θ ← θ − η (c β m + g/N); at every N-th push, before that step:
    m ← β m + Δ/N, Δ ← 0, and θ ← θ − η ((1 − c N + c) β m + g/N).

    Args:
        every: N, usually the number of workers.
        momentum: β.
        c: the share of momentum in each step between, in [0, 1/N].

    Choice, groups: an update of several gradients counts as one push of their mean.

    Limits: N = 1 is NAG bit for bit, whatever c; with c = 0, N pushes are one NAG step on their
    mean. Trap: a push moves θ by η/N, so that N of them make one step of size η.

    Liu et al. 2024, Asynchronous Local-SGD Training for Language Modeling.
    """

    every: int
    momentum: float = 0.9
    c: float = 0.0

    takes_means = True
    adds = True

    def __post_init__(self) -> None:
        count("every", self.every)
        number("momentum", self.momentum)
        require(
            0 <= number("c", self.c) <= 1 / self.every,
            f"c must be in [0, 1/every], that is at most {1 / self.every:.6g}, got {self.c!r}",
        )

    def start(self, theta: Tensor, layout: Layout) -> DelayedNesterovState:
        return DelayedNesterovState(torch.zeros_like(theta), torch.zeros_like(theta))

    def host(self, count: int) -> tuple[float, ...]:
        """What m is multiplied by, whether Δ goes into it, and the share of it in the step."""
        if count % self.every:
            return 1.0, 0.0, self.c * self.momentum
        return self.momentum, 1.0, (1 - self.c * (self.every - 1)) * self.momentum

    def step(
        self,
        theta: Tensor,
        state: DelayedNesterovState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, DelayedNesterovState, tuple[Nothing, ...]]:
        signal = combine(signals)
        keep, moves, share = now.optimizer
        gathered = state.gathered + signal.first
        velocity = (state.velocity * keep).add((gathered / self.every) * moves)
        direction = torch.addcmul(signal.first / self.every, velocity, share)
        theta = torch.addcmul(theta, direction, -rate(signal, now))
        return theta, DelayedNesterovState(velocity, gathered * (1 - moves)), tuple(owns)


def delayed_nesterov(
    lr: Rate,
    every: int,
    momentum: float = 0.9,
    c: float = 0.0,
    weight_decay: float = 0.0,
) -> Rule:
    """Δ ← Δ + g; every N-th push m ← β m + Δ/N, Δ ← 0; θ ← θ − η (β m · [N-th, or c] + g/N)

    Liu et al. 2024; the whole of it is told at `DelayedNesterov`. every=1 is `sgd` with
    Nesterov's momentum.
    """
    return Rule(lr, DelayedNesterov(every, momentum, c), weight_decay=weight_decay)
