"""Delay compensation: a first-order guess of what the gradient would be at the server's θ."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import fraction, not_negative, one_of
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Now, Peek, Push, Signal

MEAN_SQUARE_EPS = 1e-7


class DelayState(NamedTuple):
    """The mean square, where the server keeps a single one."""

    mean_square: tuple[Tensor, ...]


class DelayOwn(NamedTuple):
    """The mean square, where each worker has its own."""

    mean_square: tuple[Tensor, ...]


@dataclass(frozen=True)
class DelayCompensation(Correction[DelayState, DelayOwn]):
    """g + λ g ⊙ g ⊙ (θ − view), then any optimizer.

    constant: λ = lam. adaptive: MS ← m MS + (1−m) g²; λ = lam / √(MS + 1e-7).
    lam = 0 is no correction. A worker's view starts at θ0, never at zero.

    Args:
        lam: λ0, the strength.
        adaptive: whether λ = lam / √(MS + 1e-7) rather than lam itself.
        mean_square_decay: m.
        mean_square: who has an MS: each "worker", or the "server" one for all.

    Choice: MS is one per worker, as the authors' released code keeps it; mean_square="server"
    keeps a single one (moved once per update by the group's mean gradient).

    Zheng et al. 2017, DC-ASGD-c and DC-ASGD-a.
    """

    lam: float = 0.04
    adaptive: bool = False
    mean_square_decay: float = 0.95
    mean_square: Literal["worker", "server"] = "worker"

    def __post_init__(self) -> None:
        not_negative("lam", self.lam)
        fraction("mean_square_decay", self.mean_square_decay)
        one_of("mean_square", self.mean_square, ("worker", "server"))

    @property
    def takes_means(self) -> bool:  # type: ignore[override]
        return not self.adaptive or self.mean_square == "server"

    def start(self, theta: Tensor, layout: Layout) -> DelayState:
        shared = self.adaptive and self.mean_square == "server"
        return DelayState((torch.zeros_like(theta),) if shared else ())

    def start_own(self, theta: Tensor, layout: Layout) -> DelayOwn:
        own = self.adaptive and self.mean_square == "worker"
        return DelayOwn((torch.zeros_like(theta),) if own else ())

    def observe(
        self, state: DelayState, grad: Tensor, peek: Peek, now: Now, layout: Layout
    ) -> DelayState:
        return DelayState(tuple(self._average(old, grad) for old in state.mean_square))

    def correct(
        self,
        theta: Tensor,
        state: DelayState,
        own: DelayOwn,
        push: Push,
        now: Now,
        layout: Layout,
    ) -> tuple[Signal, DelayOwn]:
        own = DelayOwn(tuple(self._average(old, push.grad) for old in own.mean_square))
        curvature = push.grad * push.grad * self.lam
        for mean_square in (*state.mean_square, *own.mean_square):
            curvature = curvature / torch.sqrt(mean_square + MEAN_SQUARE_EPS)
        grad = torch.addcmul(push.grad, curvature, theta - push.view)
        # The compensated gradient stands for the true one everywhere, second moments included.
        return Signal(grad, grad), own

    def _average(self, old: Tensor, grad: Tensor) -> Tensor:
        return old * self.mean_square_decay + grad * grad * (1 - self.mean_square_decay)
