"""Gap-Aware: divide the gradient by how far, in average steps, θ has moved since its view."""

import itertools
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import not_negative, one_of, positive
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Nothing, Now, Peek, Push, Scope, Signal

DECAY = 0.999
EPS = 1e-8


class GapState(NamedTuple):
    mean_square: Tensor
    """m: of the step u, per parameter, per tensor or for all (per="layer", "global")."""


@dataclass(frozen=True)
class Gap(Correction[GapState, Nothing]):
    """g / G, G = |θ − view| / C + 1; C = η_max (√m̂ + ε), m ← β m + (1−β) u², m̂ = m / (1−β^k).

    β = 0.999, ε = 1e-8, k counts updates from 1.

    Args:
        per: "parameter" as above; "layer" one G per named tensor, ‖θ_p − view_p‖ / C_p + 1 with
            C_p from the mean square of ‖u_p‖ (choice: a layer is a named tensor); "global" one G.
        step: what u is. Alg. 14 is circular with Alg. 4 (C needs the step, the step needs G).
            "previous": u = v before this update, as a later public implementation from the same
            group does. "tentative": u = γ v + g with the raw gradient, before G is known (Adam: its
            unpenalised direction m̂/(√û + ε), which the paper leaves open).
        max_lr: η_max; None is the largest rate of the whole schedule, warm-up or not.
        tolerance: only the part of the gap above it counts, G = max(0, gap − tolerance) + 1
            (App. C.13 suggests it; 0 is the paper).

    Choices: C from the root mean square of the step (Alg. 14) rather than the mean norm of the
    gradient (Def. 1), because the experiments used it. Weight decay is part of the gradient:
    (g + wd·θ)/G. Under a policy that scales the rate, η_max is scaled with it.

    Barkai, Hakimi and Schuster 2020, Def. 1, eq. 12–13, Alg. 4 and 14, App. C.5.
    """

    per: Literal["parameter", "layer", "global"] = "parameter"
    step: Literal["previous", "tentative"] = "previous"
    max_lr: float | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        one_of("per", self.per, ("parameter", "layer", "global"))
        one_of("step", self.step, ("previous", "tentative"))
        if self.max_lr is not None:
            positive("max_lr", self.max_lr)
        not_negative("tolerance", self.tolerance)

    @property
    def scope(self) -> Scope | None:  # type: ignore[override]
        if self.per == "layer":
            return "tensor"
        return "model" if self.per == "global" else None

    @property
    def reads_largest_rate(self) -> bool:  # type: ignore[override]
        return self.max_lr is None

    @property
    def takes_means(self) -> bool:  # type: ignore[override]
        # The tentative step of a mean is not every optimizer's mean of tentative steps.
        return self.step == "previous"

    def start(self, theta: Tensor, layout: Layout) -> GapState:
        return GapState(torch.zeros_like(self._size(theta, layout)))

    def host(self, count: int) -> tuple[float, ...]:
        return (1 - DECAY**count,)

    def observe(
        self, state: GapState, grad: Tensor, peek: Peek, now: Now, layout: Layout
    ) -> GapState:
        u = peek.previous() if self.step == "previous" else peek.tentative()
        size = self._size(u, layout)
        return GapState(state.mean_square * DECAY + size * size * (1 - DECAY))

    def correct(
        self, theta: Tensor, state: GapState, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        gap = self.gap(theta, state, push, now, layout)
        return Signal(push.grad / self._spread(gap, layout), push.grad), own

    def gap(self, theta: Tensor, state: GapState, push: Push, now: Now, layout: Layout) -> Tensor:
        """G, one per parameter, per tensor or for all."""
        (bias,) = now.correction
        lr_max = now.lr_max if self.max_lr is None else self.max_lr
        average_step = (torch.sqrt(state.mean_square / bias) + EPS) * lr_max
        gap = self._size(theta - push.view, layout) / average_step
        if self.tolerance:
            gap = torch.clamp(gap - self.tolerance, min=0)
        return gap + 1

    def _size(self, vector: Tensor, layout: Layout) -> Tensor:
        """|x| per parameter, ‖x_p‖ per tensor, or ‖x‖."""
        if self.per == "parameter":
            return vector.abs()
        if self.per == "global":
            return _norm(vector).reshape(1)
        at = layout.offsets
        return torch.stack([_norm(vector[a:b]) for a, b in itertools.pairwise(at)])

    def _spread(self, values: Tensor, layout: Layout) -> Tensor:
        """One value per tensor, laid out over its parameters."""
        if self.per != "layer":
            return values
        parts = [values[i].expand(size) for i, size in enumerate(layout.sizes)]
        return torch.cat(parts)


def _norm(vector: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(vector)
    return norm
