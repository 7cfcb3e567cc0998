"""The server's rule: how arrived gradients change the parameters, and what is sent back.

A `Rule` is a *correction* (of one gradient, for its staleness) in front of an *optimizer*, as
`parts` has them, and as pure as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import number, positive, require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Now, Optimizer, Peek, Push, check_part, mean
from tardigrad.rules.rates import Progress, Rate, learning_rate
from tardigrad.rules.raw import Raw


class RuleState(NamedTuple):
    """A shard's state: the parts' own, and the running average of θ (empty unless asked for)."""

    correction: Any
    optimizer: Any
    average: tuple[Tensor, ...] = ()


class RuleOwn(NamedTuple):
    """One worker's rows at a shard: DANA's v_i, DC-ASGD-a's mean square."""

    correction: Any
    optimizer: Any


@dataclass(frozen=True)
class Rule:
    """A correction in front of an optimizer.

    Args:
        lr: a number is kept as the constant rate.
        weight_decay: wd·θ, with the server's θ, is added to each gradient before any correction
            (a choice: it is part of the gradient, so gaps and moments see it).
        within_group: apply a group's gradients one after another at η/M instead of their mean
            (DC-SSGD).
        ema: keep θ̄ ← ema·θ̄ + (1 − ema)·θ after each update, from θ̄ = θ0, to be evaluated beside θ.
        clip_norm: workers scale a gradient whose norm exceeds this down to it, before they push.
    """

    lr: Rate
    optimizer: Optimizer[Any, Any]
    correction: Correction[Any, Any] = field(default_factory=Raw)
    weight_decay: float = 0.0
    within_group: bool = False
    ema: float | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", learning_rate(self.lr))
        check_part(self.correction, Correction)
        check_part(self.optimizer, Optimizer)
        require(number("weight_decay", self.weight_decay) >= 0, "weight_decay must not be negative")
        if self.ema is not None:
            require(0 < number("ema", self.ema) < 1, f"ema must be in (0, 1), got {self.ema}")
        if self.clip_norm is not None:
            positive("clip_norm", self.clip_norm)

    @property
    def takes_means(self) -> bool:
        """Whether it is known that a group of gradients at θ itself, none late, does what their
        mean does."""
        if type(self) is not Rule or self.within_group or self.clip_norm is not None:
            return False
        return self.correction.takes_means and self.optimizer.takes_means

    def start(self, theta: Tensor, layout: Layout) -> RuleState:
        average = () if self.ema is None else (theta.clone(),)
        correction, optimizer = self.correction, self.optimizer
        return RuleState(correction.start(theta, layout), optimizer.start(theta, layout), average)

    def start_own(self, theta: Tensor, layout: Layout) -> RuleOwn:
        correction, optimizer = self.correction, self.optimizer
        return RuleOwn(correction.start_own(theta, layout), optimizer.start_own(theta, layout))

    def scalars(self, progress: Progress, scale: float = 1.0) -> "Scalars":
        """The host's part of an update, as Python floats in the order of `Now`."""
        count, rate = progress.updates + 1, learning_rate(self.lr)
        return Scalars(
            rate.at(progress) * scale,
            rate.max * scale,
            self.correction.host(count),
            self.optimizer.host(count),
        )

    def now(self, progress: Progress, scale: float = 1.0) -> Now:
        """The same as 0-dim float64 tensors: rounded once, where torch.optim rounds its floats."""
        scalars = self.scalars(progress, scale)
        return Now(
            _scalar(scalars.lr),
            _scalar(scalars.lr_max),
            tuple(_scalar(x) for x in scalars.correction),
            tuple(_scalar(x) for x in scalars.optimizer),
        )

    def prepare(self, grad: Tensor) -> Tensor:
        """What a worker does to its whole gradient before it pushes: global-norm clipping."""
        if self.clip_norm is None:
            return grad
        norm = torch.linalg.vector_norm(grad)
        return grad * torch.clamp(self.clip_norm / norm, max=1.0)

    def apply(
        self,
        theta: Tensor,
        state: RuleState,
        owns: Sequence[RuleOwn],
        slots: Sequence[int],
        pushes: Sequence[Push],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, RuleState, tuple[RuleOwn, ...]]:
        """One update from a group of gradients in worker order; pushes[i] is of owns[slots[i]]."""
        if self.within_group and len(pushes) > 1:
            share = now._replace(lr=now.lr / len(pushes))
            rows = tuple(owns)
            for slot, push in zip(slots, pushes, strict=True):
                theta, state, rows = self._update(
                    theta, state, rows, (slot,), (push,), share, layout
                )
        else:
            theta, state, rows = self._update(theta, state, owns, slots, pushes, now, layout)
        if self.ema is not None:
            (average,) = state.average
            state = state._replace(average=(torch.lerp(average, theta, 1.0 - self.ema),))
        return theta, state, rows

    def _update(
        self,
        theta: Tensor,
        state: RuleState,
        owns: Sequence[RuleOwn],
        slots: Sequence[int],
        pushes: Sequence[Push],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, RuleState, tuple[RuleOwn, ...]]:
        if self.weight_decay:
            decay = self.weight_decay
            pushes = [p._replace(grad=torch.add(p.grad, theta, alpha=decay)) for p in pushes]

        grads = [push.grad for push in pushes]
        own_steps = [own.optimizer for own in owns]

        def tentative() -> Tensor:
            return self.optimizer.peek(theta, state.optimizer, own_steps, slots, grads, now, layout)

        peek = Peek(tentative, lambda: self.optimizer.previous(state.optimizer))
        corrected = self.correction.observe(state.correction, mean(grads), peek, now, layout)
        own_rows = [own.correction for own in owns]
        signals = []
        for slot, push in zip(slots, pushes, strict=True):
            signal, own_rows[slot] = self.correction.correct(
                theta, corrected, own_rows[slot], push, now, layout
            )
            signals.append(signal)
        stepped_theta, stepped, new_steps = self.optimizer.step(
            theta, state.optimizer, own_steps, slots, signals, now, layout
        )
        rows = tuple(RuleOwn(c, o) for c, o in zip(own_rows, new_steps, strict=True))
        return stepped_theta, RuleState(corrected, stepped, state.average), rows

    def send(self, theta: Tensor, state: RuleState, now: Now, gradients: int) -> Tensor:
        """What workers receive after this update of so many gradients: their next view."""
        return self.optimizer.send(theta, state.optimizer, now, gradients)

    def leave(self, state: RuleState, own: RuleOwn) -> RuleState:
        """The state once a worker has gone for good."""
        return state._replace(optimizer=self.optimizer.leave(state.optimizer, own.optimizer))

    def deviation(self, state: RuleState) -> Tensor | None:
        return self.correction.deviation(state.correction)


class Scalars(NamedTuple):
    """`Now` as Python floats."""

    lr: float
    lr_max: float
    correction: tuple[float, ...]
    optimizer: tuple[float, ...]


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
