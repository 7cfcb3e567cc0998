"""Rules that a user might write, of which most say nothing of what they look at."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.rules import (
    Adam,
    Correction,
    Nothing,
    Now,
    Optimizer,
    Push,
    Sgd,
    Signal,
    combine,
)
from tests.engine.eager_graphs import eager  # noqa: F401

LR = 0.05
LAYOUT = Layout(("weight", "bias", "out"), ((2, 3), (3,), (2, 2)))
START = torch.linspace(-1, 2, LAYOUT.size, dtype=torch.float64)
ORDER = [0, 1, 2, 0, 2, 1, 1, 0, 2] * 4


def task() -> tg.FunctionTask:
    curvature = torch.linspace(0.5, 1.5, LAYOUT.size, dtype=torch.float64)

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        return curvature * view + 0.1 * worker + 0.02 * (step % 3)

    return tg.FunctionTask(START, grad, layout=LAYOUT)


def run(
    rule: tg.Rule, engine: Any = "exact", shards: int = 1, say: Any = None, **options: Any
) -> Tensor:
    schedule = tg.Schedule.from_order(ORDER, 3, shards=shards)
    return tg.execute(schedule, task(), rule, engine, say=say, **options).params


@dataclass(frozen=True)
class Does(Correction[Any, Nothing]):
    """g ← what(θ, push, now, layout)."""

    what: Callable[[Tensor, Push, Now, Layout], Tensor]

    def correct(
        self, theta: Tensor, state: Any, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        return Signal(self.what(theta, push, now, layout), push.grad), own


class DoesAlone(Does):
    scope = "parameter"


class DoesByTensor(Does):
    scope = "tensor"


class DoesAll(Does):
    scope = "model"


class DoesLayers(Does):
    scope: Any = "layer"  # no such word


@dataclass(frozen=True)
class Normed(Optimizer[Nothing, Nothing]):
    """θ ← θ − η g ‖θ‖ / (‖g‖ + 1), as LAMB and LARS do."""

    def step(
        self,
        theta: Tensor,
        state: Any,
        owns: Any,
        slots: Any,
        signals: Any,
        now: Now,
        layout: Layout,
    ) -> Any:
        direction = self._scaled(theta, combine(signals).first, layout)
        return torch.addcmul(theta, direction, -now.lr), state, tuple(owns)

    def _scaled(self, theta: Tensor, grad: Tensor, layout: Layout) -> Tensor:
        return grad * theta.norm() / (grad.norm() + 1)


class NormedAll(Normed):
    scope = "model"


@dataclass(frozen=True)
class NormedSilently(Normed):
    """Each tensor by its own norms, or each row of a matrix by its."""

    rows: bool = False

    def _scaled(self, theta: Tensor, grad: Tensor, layout: Layout) -> Tensor:
        out = []
        for x, g in zip(*(layout.unflatten(v).values() for v in (theta, grad)), strict=True):
            over = -1 if self.rows and x.dim() > 1 else None
            size, length = (torch.linalg.vector_norm(v, dim=over, keepdim=True) for v in (x, g))
            out.append((g * size / (length + 1)).flatten())
        return torch.cat(out)


class NormedByTensor(NormedSilently):
    scope = "tensor"


class NormedAdam(Adam):
    """Says nothing, and is built on one that treats each parameter alone."""

    def step(self, theta: Tensor, *rest: Any) -> Any:
        new, *others = super().step(theta, *rest)
        return (theta + (new - theta) / (1 + (new - theta).norm()), *others)


class PeeksAtAll(Sgd):
    """Only its tentative step is of all parameters."""

    def peek(self, *given: Any) -> Tensor:
        step = super().peek(*given)
        return step / (1 + step.norm())


class OfGroups(Sgd):
    """Only groups are looked at together."""

    def step(
        self, theta: Tensor, state: Any, owns: Any, slots: Any, signals: Any, *now: Any
    ) -> Any:
        scale = 1 / (1 + signals[1].first.sum()) if len(signals) > 1 else 1
        new, *others = super().step(theta, state, owns, slots, signals, *now)
        return (theta + (new - theta) * scale, *others)


def past_torch(theta: Tensor, push: Push, now: Now, layout: Layout) -> Tensor:
    """A branch on numbers, without torch knowing."""
    return push.grad * 0.5 if push.grad.detach().numpy().max() > 1.9 else push.grad


TOGETHER: dict[str, Callable[[Tensor, Push, Now, Layout], Tensor]] = {
    "norm": lambda theta, push, now, layout: push.grad / (1 + push.grad.norm()),
    "vector_norm": lambda theta, push, now, layout: (
        push.grad / (1 + torch.linalg.vector_norm(theta - push.view))
    ),
    "sum": lambda theta, push, now, layout: push.grad - 0.01 * push.grad.sum(),
    "mean": lambda theta, push, now, layout: push.grad - push.grad.mean(),
    "max": lambda theta, push, now, layout: push.grad / (1 + push.grad.abs().max()),
    "keepdim": lambda theta, push, now, layout: push.grad - push.grad.mean(0, keepdim=True),
    "dot": lambda theta, push, now, layout: push.grad * torch.tanh(push.grad @ theta),
    "first": lambda theta, push, now, layout: push.grad * torch.tanh(theta[0]),
    "roll": lambda theta, push, now, layout: push.grad + 0.1 * theta.roll(1),
    "cumsum": lambda theta, push, now, layout: push.grad + 0.01 * theta.cumsum(0),
    "sort": lambda theta, push, now, layout: push.grad + 0.01 * theta.sort().values,
    "softmax": lambda theta, push, now, layout: push.grad * torch.softmax(theta, 0),
    "outer": lambda theta, push, now, layout: (push.grad[:, None] * theta).sum(0) * 0.1,
    "count": lambda theta, push, now, layout: push.grad * 10 / len(theta),
    "place": lambda theta, push, now, layout: push.grad / (1 + torch.arange(len(theta))),
    "layout": lambda theta, push, now, layout: push.grad / len(layout.names),
    "scalars": lambda theta, push, now, layout: push.grad * push.staleness.sum() * now.lr.mean(),
    "number": lambda theta, push, now, layout: push.grad / (1 + float(push.grad.norm())),
    "branch": lambda theta, push, now, layout: push.grad if push.grad.sum() > 1 else push.grad / 2,
    "held": lambda theta, push, now, layout: push.grad * (1 + START[: len(theta)]),
    "past torch": past_torch,
}
ALONE: dict[str, Callable[[Tensor, Push, Now, Layout], Tensor]] = {
    "plain": lambda theta, push, now, layout: push.grad / push.staleness,
    "view": lambda theta, push, now, layout: push.grad * torch.exp((theta - push.view).abs() * -1),
    "where": lambda theta, push, now, layout: torch.where(push.grad > 1, push.grad / 2, push.grad),
    "tanh": lambda theta, push, now, layout: torch.tanh(push.grad) + theta.sign() * 0.01,
    "power": lambda theta, push, now, layout: push.grad * theta.abs() ** 0.3,
    "constant": lambda theta, push, now, layout: push.grad * torch.tensor(0.3) * push.staleness,
    "in place": lambda theta, push, now, layout: push.grad.clone().mul_(0.5),
}
