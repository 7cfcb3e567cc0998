"""DANA's optimizer: one momentum buffer per worker, and the look-ahead as what is sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import number
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Now, Optimizer, Signal, combine, rate


class DanaState(NamedTuple):
    velocity_sum: Tensor


class DanaOwn(NamedTuple):
    velocity: Tensor


@dataclass(frozen=True)
class Dana(Optimizer[DanaState, DanaOwn]):
    """v_i ← γ v_i + p; θ ← θ − η v_i; sent to worker i: θ − η γ Σ_j v_j.

    Symbols: v_i the buffer of worker i, p the (corrected) gradient; Σ_j v_j is kept as a running
    sum. With one worker the sent vector follows torch's Nesterov trajectory.

    Args:
        momentum: γ, of each worker's own buffer.

    Choices:
        Groups: in an update of M gradients every worker's buffer takes its own, and
        θ ← θ − η·scale·mean of their v_i, so what is sent after it looks ahead by that much:
        θ − η γ·scale·Σ_j v_j / M. With equal gradients, Sync of λ workers is then one worker; with
        Σ_j v_j alone the look-ahead is λ times too far, and diverges.
        Absences: a worker that leaves takes its v_i out of the sum, and a gradient of it that is
        applied afterwards moves θ but leaves no v_i behind.

    Gap-Aware paper, Alg. 6 (7 and 8 with the corrections).
    """

    momentum: float = 0.9

    adds = True

    def __post_init__(self) -> None:
        number("momentum", self.momentum)

    def start(self, theta: Tensor, layout: Layout) -> DanaState:
        return DanaState(torch.zeros_like(theta))

    def start_own(self, theta: Tensor, layout: Layout) -> DanaOwn:
        return DanaOwn(torch.zeros_like(theta))

    def step(
        self,
        theta: Tensor,
        state: DanaState,
        owns: Sequence[DanaOwn],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, DanaState, tuple[DanaOwn, ...]]:
        rows, total, steps = list(owns), state.velocity_sum, []
        for slot, signal in zip(slots, signals, strict=True):
            velocity = rows[slot].velocity.mul(self.momentum).add(signal.first)
            total = total + (velocity - rows[slot].velocity)
            rows[slot] = DanaOwn(velocity)
            steps.append(signal._replace(first=velocity))
        step = combine(steps)
        theta = torch.addcmul(theta, step.first, -rate(step, now))
        return theta, DanaState(total), tuple(rows)

    def send(self, theta: Tensor, state: DanaState, now: Now, gradients: int) -> Tensor:
        return torch.addcmul(theta, state.velocity_sum, -(now.lr * self.momentum / gradients))

    def leave(self, state: DanaState, own: DanaOwn) -> DanaState:
        return DanaState(state.velocity_sum - own.velocity)
