"""An optimizer of a user's own that looks at whole tensors: LAMB."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.layout import Layout
from tardigrad.rules import Nothing, Now, Optimizer, Signal, combine, rate


class LambState(NamedTuple):
    mean: Tensor
    mean_square: Tensor


@dataclass(frozen=True)
class Lamb(Optimizer[LambState, Nothing]):
    """r = m̂ / (√û + ε) + λ θ; θ_p ← θ_p − η ‖θ_p‖ / ‖r_p‖ r_p, for each tensor p (You et al. 2020,
    Alg. 2), or for each row of a matrix. A norm of 0 makes the ratio 1."""

    by: Literal["tensor", "row"] = "tensor"
    decay: float = 0.01

    scope = "tensor"

    def start(self, theta: Tensor, layout: Layout) -> LambState:
        return LambState(torch.zeros_like(theta), torch.zeros_like(theta))

    def host(self, count: int) -> tuple[float, ...]:
        return 1 - 0.9**count, 1 - 0.999**count

    def step(
        self,
        theta: Tensor,
        state: LambState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, LambState, tuple[Nothing, ...]]:
        signal = combine(signals)
        mean_bias, square_bias = now.optimizer
        mean = torch.lerp(state.mean, signal.first, 0.1)
        square = state.mean_square * 0.999 + signal.raw * signal.raw * 0.001
        r = (mean / mean_bias) / (torch.sqrt(square / square_bias) + 1e-8) + self.decay * theta
        tensors, steps = layout.unflatten(theta), layout.unflatten(r)
        along = [self._scaled(tensors[name], steps[name]).reshape(-1) for name in layout.names]
        theta = torch.addcmul(theta, torch.cat(along), -rate(signal, now))
        return theta, LambState(mean, square), tuple(owns)

    def _scaled(self, tensor: Tensor, step: Tensor) -> Tensor:
        over = (-1,) if self.by == "row" and tensor.dim() > 1 else tuple(range(tensor.dim()))
        size = torch.linalg.vector_norm(tensor, dim=over, keepdim=True)
        length = torch.linalg.vector_norm(step, dim=over, keepdim=True)
        ratio = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
        return ratio * step
