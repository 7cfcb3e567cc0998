"""A work of a user's own, which keeps a state."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

import tardigrad as tg
from tardigrad.tasks import Task, Turn


@dataclass(frozen=True)
class HeavyBall(tg.Work[tuple[torch.Tensor]]):
    """What a worker pushes is its own momentum: one batch, so that any link goes with it."""

    def start(self, task: Task, theta: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.zeros_like(theta),)

    def run(
        self,
        task: Task,
        view: torch.Tensor,
        state: tuple[torch.Tensor],
        turn: Turn,
        batches: int,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> tg.Delivery[tuple[torch.Tensor]]:
        found = task.gradient(view, turn)
        velocity = 0.5 * state[0] + found.grad
        return tg.Delivery(found._replace(grad=velocity), (velocity,))
