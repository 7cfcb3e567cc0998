"""What a rule is made of: corrections and optimizers, and what they are handed.

Both are pure: tensors in, new tensors out, on the flat vector of a shard, whose layout (names,
shapes and offsets of the tensors in it) they are given too. A rule that mutated its inputs would
change views that workers still hold (the view is an earlier θ), and Gap-Aware would silently become
SGD; executors check it.

What varies from update to update comes in as 0-dim tensors (`Now`, `Push.staleness`), so that a
compiled window of updates never recompiles. Everything else is a Python constant of the part.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.core.layout import Layout

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

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for word in ("takes_means", "adds"):
            if hasattr(cls, word) and word not in vars(cls):
                setattr(cls, word, False)

    @property
    def called(self) -> str:
        """Its name in messages."""
        return type(self).__name__


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
    reads_largest_rate: bool = False
    """Whether it needs `Now.lr_max`, which is NaN for a rate that is a function of one's own."""
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
    adds: bool = False
    """Whether it is known that what `step` adds to θ does not depend on θ. A subclass says it anew,
    or it is not known of it."""

    def start(self, theta: Tensor, layout: Layout) -> State:
        return Nothing()  # type: ignore[return-value]

    def start_own(self, theta: Tensor, layout: Layout) -> Own:
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
        layout: Layout,
    ) -> tuple[Tensor, State, tuple[Own, ...]]:
        """`owns[slots[i]]` are the rows of the worker that sent signals[i]. Where gradients of a
        group count for more or less than others, `signals` is one: what `combine` makes of them."""

    def peek(
        self,
        theta: Tensor,
        state: State,
        owns: Sequence[Own],
        slots: Sequence[int],
        grads: Sequence[Tensor],
        now: Now,
        layout: Layout,
    ) -> Tensor:
        """The direction u that a group's raw gradients would make θ step along: θ − η u.

        It is a step with η = 1, from θ, or from 0 where that is the same: no digit is lost then.
        """
        unit = now._replace(lr=torch.ones_like(now.lr))
        begin = torch.zeros_like(theta) if self.adds else theta
        signals = [Signal(grad, grad) for grad in grads]
        stepped, _, _ = self.step(begin, state, owns, slots, signals, unit, layout)
        return -stepped if self.adds else theta - stepped

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


def check_part(part: Any, base: type[Correction[Any, Any]] | type[Optimizer[Any, Any]]) -> None:
    """Refuse what is no such part, or does not take what it is called with, as one that was written
    for another version."""
    kind = base.__name__
    require(
        isinstance(part, base),
        f"{kind.lower()} must be a tardigrad.rules.{kind}, got {part!r}",
    )
    for name, method in vars(base).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        wanted = list(inspect.signature(method).parameters)[1:]
        try:
            inspect.signature(getattr(part, name)).bind(*wanted)
        except TypeError:
            where = f"{type(part).__name__}.{name}"
            raise ValueError(
                f"{where} does not take what it is called with: write it as "
                f"def {name}({', '.join(['self', *wanted])})"
            ) from None


def mean(tensors: Sequence[Tensor], weights: Sequence[Tensor] = ()) -> Tensor:
    """The mean, summed in the given order; of one tensor, itself. With weights, which are 0-dim and
    together 1, Σ w_i x_i."""
    if weights:
        tensors = [x * weight for x, weight in zip(tensors, weights, strict=True)]
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total if weights or len(tensors) == 1 else total / len(tensors)


def combine(signals: Sequence[Signal], weights: Sequence[Tensor] = ()) -> Signal:
    """A group's signal: the mean of each part, by these weights where there are some.

    A choice for groups: a penalty on the whole step has no single value where τ differs, so each
    gradient takes its own (g_i/τ_i), which without momentum is the same formula.
    """
    if len(signals) == 1:
        return signals[0]
    first = [s.first if s.step_scale is None else s.first * s.step_scale for s in signals]
    return Signal(mean(first, weights), mean([s.raw for s in signals], weights))


def rate(signal: Signal, now: Now) -> Tensor:
    """η, times the penalty on the whole step where there is one."""
    return now.lr if signal.step_scale is None else now.lr * signal.step_scale
