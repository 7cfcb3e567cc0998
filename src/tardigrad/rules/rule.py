"""The server's rule: how arrived gradients change the parameters, and what is sent back.

A `Rule` is a *correction* (of one gradient, for its staleness) in front of an *optimizer*. Both are
pure: tensors in, new tensors out, on the flat vector of a shard. A rule that mutated its inputs
would change views that workers still hold (the view is an earlier θ), and Gap-Aware would silently
become SGD; executors check it.

What varies from update to update comes in as 0-dim tensors (`Now`, `Push.staleness`), so that a
compiled window of updates never recompiles. Everything else is a Python constant of the rule.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from tardigrad.core.checks import number, positive, require
from tardigrad.core.layout import Layout
from tardigrad.rules.rates import Progress, Rate, learning_rate

State = TypeVar("State", bound=tuple[Any, ...])
Own = TypeVar("Own", bound=tuple[Any, ...])
Scope = Literal["parameter", "tensor", "model"]
"""What a correction or an optimizer looks at to change one parameter: that one alone, its whole
tensor (such as a norm of it), or all parameters. Where it does not say (None), "parameter" is found
out by tracing its code; the others must be said, and shards are cut so that they hold."""


class Nothing(NamedTuple):
    """The state of a part that keeps none."""


class Push(NamedTuple):
    """An arrived gradient: where it was computed, and its staleness τ = delay + 1 (0-dim)."""

    grad: Tensor
    view: Tensor
    staleness: Tensor


class Now(NamedTuple):
    """What varies per update: the rate η and the largest rate of the schedule η_max, both times the
    policy's scale (linear scaling), and the host-computed scalars of the two parts, all 0-dim."""

    lr: Tensor
    lr_max: Tensor
    correction: tuple[Tensor, ...] = ()
    optimizer: tuple[Tensor, ...] = ()
    out: Tensor | None = None
    """Memory that nobody reads: a step may make the new θ there, which spares the caller a copy."""


class Signal(NamedTuple):
    """What a correction hands to the optimizer.

    `first` drives the step (Adam's first moment); `raw` is what Adam's second moment takes;
    `step_scale` multiplies the whole step, momentum included (None: 1).
    """

    first: Tensor
    raw: Tensor
    step_scale: Tensor | None = None


class Peek(NamedTuple):
    """The optimizer's step as corrections may ask for it, computed only when asked."""

    tentative: Callable[[], Tensor]
    """The step the group's raw gradients would make."""
    previous: Callable[[], Tensor]
    """The step of the update before."""


class _SaysAnew:
    """What a class vouches for holds for its own code, not for that of a class derived from it."""

    takes_means: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "takes_means" not in vars(cls):
            cls.takes_means = False


class Correction(_SaysAnew, ABC, Generic[State, Own]):
    """Corrects one gradient for its staleness.

    `observe` runs once per update on the group's mean gradient and moves the shared statistics;
    `correct` runs once per gradient and moves only that worker's own rows. So λ gradients computed
    at one view make the update that one gradient of a λ times larger batch makes: for every
    correction where that view is θ itself; where it is an older one, for all but delay
    compensation, which squares each gradient, and a penalty on the whole step beside momentum
    (`combine`). DANA's buffers, one per worker, remain those of λ workers.
    """

    scope: Scope | None = None
    """What is looked at together; see `Scope`."""
    takes_means: bool = False
    """Whether it is known that a gradient at θ itself, not late, is corrected by a factor that does
    not depend on it, without rows of its worker's own, and that its step is scaled by 1. Then a
    group of such gradients is corrected as their mean is. A subclass says it anew, or it is not
    known of it."""

    def start(self, theta: Tensor, layout: Layout) -> State:
        return Nothing()  # type: ignore[return-value]

    def start_own(self, theta: Tensor, layout: Layout) -> Own:
        return Nothing()  # type: ignore[return-value]

    def host(self, count: int) -> tuple[float, ...]:
        """Scalars that Python computes for update number `count` (from 1), such as 1 − β^k."""
        return ()

    def observe(self, state: State, grad: Tensor, peek: Peek, now: Now, layout: Layout) -> State:
        return state

    @abstractmethod
    def correct(
        self, theta: Tensor, state: State, own: Own, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Own]: ...

    def deviation(self, state: State) -> Tensor | None:
        """The gradient's deviation per parameter, which bandwidth-aware links read (FASGD's v)."""
        return None


class Optimizer(_SaysAnew, ABC, Generic[State, Own]):
    """Makes one step from the signals of a group, in worker order."""

    scope: Scope | None = None
    """What is looked at together; see `Scope`."""
    takes_means: bool = False
    """Whether it is known that `step` sees nothing of a group but what `combine` makes of it, and
    that θ itself is sent. A subclass says it anew, or it is not known of it."""

    def start(self, theta: Tensor) -> State:
        return Nothing()  # type: ignore[return-value]

    def start_own(self, theta: Tensor) -> Own:
        return Nothing()  # type: ignore[return-value]

    def host(self, count: int) -> tuple[float, ...]:
        return ()

    @abstractmethod
    def step(
        self,
        theta: Tensor,
        state: State,
        owns: Sequence[Own],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
    ) -> tuple[Tensor, State, tuple[Own, ...]]:
        """`owns[slots[i]]` are the rows of the worker that sent signals[i]."""

    def peek(
        self,
        state: State,
        owns: Sequence[Own],
        slots: Sequence[int],
        grads: Sequence[Tensor],
        now: Now,
    ) -> Tensor:
        """The direction u that a group's raw gradients would make θ step along: θ − η u."""
        unit = now._replace(lr=torch.ones_like(now.lr), out=None)
        zero = torch.zeros_like(grads[0])
        signals = [Signal(grad, grad) for grad in grads]
        stepped, _, _ = self.step(zero, state, owns, slots, signals, unit)
        return -stepped

    def previous(self, state: State) -> Tensor:
        """The direction of the update before, where the optimizer keeps it."""
        raise ValueError(
            f'{type(self).__name__} keeps no previous step: use step="tentative" with it'
        )

    def send(self, theta: Tensor, state: State, now: Now, gradients: int) -> Tensor:
        """What a worker receives after an update of so many gradients: θ itself, but for look-ahead
        rules."""
        return theta

    def leave(self, state: State, own: Own) -> State:
        """The state without a worker that has gone."""
        return state


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
    correction: Correction[Any, Any] = field(default_factory=lambda: Raw())
    weight_decay: float = 0.0
    within_group: bool = False
    ema: float | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", learning_rate(self.lr))
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
        return RuleState(self.correction.start(theta, layout), self.optimizer.start(theta), average)

    def start_own(self, theta: Tensor, layout: Layout) -> RuleOwn:
        return RuleOwn(self.correction.start_own(theta, layout), self.optimizer.start_own(theta))

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
            share = now._replace(lr=now.lr / len(pushes), out=None)
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
            return self.optimizer.peek(state.optimizer, own_steps, slots, grads, now)

        peek = Peek(tentative, lambda: self.optimizer.previous(state.optimizer))
        corrected = self.correction.observe(state.correction, mean(grads), peek, now, layout)
        own_rows = [own.correction for own in owns]
        signals = []
        for slot, push in zip(slots, pushes, strict=True):
            signal, own_rows[slot] = self.correction.correct(
                theta, corrected, own_rows[slot], push, now, layout
            )
            signals.append(signal)
        theta, stepped, new_steps = self.optimizer.step(
            theta, state.optimizer, own_steps, slots, signals, now
        )
        rows = tuple(RuleOwn(c, o) for c, o in zip(own_rows, new_steps, strict=True))
        return theta, RuleState(corrected, stepped, state.average), rows

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


@dataclass(frozen=True)
class Raw(Correction[Nothing, Nothing]):
    """g as it is."""

    takes_means = True

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        return Signal(push.grad, push.grad), own


def mean(tensors: Sequence[Tensor]) -> Tensor:
    """The mean, summed in the given order; of one tensor, itself."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total if len(tensors) == 1 else total / len(tensors)


def combine(signals: Sequence[Signal]) -> Signal:
    """A group's signal: the mean of each part.

    A choice for groups: a penalty on the whole step has no single value where τ differs, so each
    gradient takes its own (g_i/τ_i), which without momentum is the same formula.
    """
    if len(signals) == 1:
        return signals[0]
    first = [s.first if s.step_scale is None else s.first * s.step_scale for s in signals]
    return Signal(mean(first), mean([s.raw for s in signals]))


def rate(signal: Signal, now: Now) -> Tensor:
    """η, times the penalty on the whole step where there is one."""
    return now.lr if signal.step_scale is None else now.lr * signal.step_scale


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
