"""The server's rule: how arrived gradients change the parameters, and what is sent back.

A `Rule` is a *correction* (of one gradient, for its staleness) in front of an *optimizer*, as
`parts` has them, and as pure as they are.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from tardigrad.core.checks import name_patterns, nearest, number, positive, require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Now, Optimizer, Peek, Push, check_part, combine, mean
from tardigrad.rules.rate_scales import Scales, checked_scales, chosen, scaled_parameters
from tardigrad.rules.rates import Progress, Rate, learning_rate
from tardigrad.rules.raw import Raw

T = TypeVar("T")


class RuleState(NamedTuple):
    """A shard's state: the parts' own, the running average of θ (empty unless asked for), which
    parameters decay, and whose rate is scaled."""

    correction: Any
    optimizer: Any
    average: tuple[Tensor, ...] = ()
    decayed: tuple[Tensor, ...] = ()
    """1 for each parameter that decays and 0 for the others; nothing where all do."""
    scaled: tuple[Tensor, ...] = ()
    """For each of the rule's `rate_scale`, 1 for the parameters that it is for, and 0 elsewhere."""


class RuleOwn(NamedTuple):
    """One worker's rows at a shard: DANA's v_i, DC-ASGD-a's mean square."""

    correction: Any
    optimizer: Any


@dataclass(frozen=True)
class Rule:
    """A correction in front of an optimizer.

    Args:
        lr: η: a number, or a rate; a number is kept as the constant rate.
        weight_decay: wd·θ, with the server's θ, is added to each gradient before any correction
            (a choice: it is part of the gradient, so gaps and moments see it).
        decoupled: instead, shrink θ by 1 − η·wd before the step (AdamW). Choice: η is not penalised
            there, because the server's θ is not late.
        no_decay: patterns of the names of tensors that do not decay, such as ("*bias", "*norm*").
        rate_scale: factors on η for some tensors, by patterns of their names, such as
            {"head.*": 10.0}; the first that fits counts. As torch's parameter groups.
        within_group: apply a group's gradients one after another at η/M instead of their mean
            (DC-SSGD).
        ema: keep θ̄ ← ema·θ̄ + (1 − ema)·θ after each update, from θ̄ = θ0, to be evaluated beside θ.
        clip_norm: where workers clip, in its old place, for one release. A rule clips nothing: this
            is handed on to the work, which says it now, as in tg.OneGradient(clip_norm=1.0).
    """

    lr: Rate
    optimizer: Optimizer[Any, Any]
    correction: Correction[Any, Any] = field(default_factory=Raw)
    weight_decay: float = 0.0
    within_group: bool = False
    ema: float | None = None
    clip_norm: float | None = None
    decoupled: bool = False
    no_decay: tuple[str, ...] = ()
    rate_scale: Mapping[str, float] | Scales = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", learning_rate(self.lr))
        check_part(self.correction, Correction)
        check_part(self.optimizer, Optimizer)
        require(
            not (math.isnan(learning_rate(self.lr).max) and self.correction.reads_largest_rate),
            f"{self.correction.called} needs the largest rate of the run, which a function does "
            "not tell: write lr=rates.function(your_function, largest=0.1)",
        )
        require(number("weight_decay", self.weight_decay) >= 0, "weight_decay must not be negative")
        if self.ema is not None:
            require(0 < number("ema", self.ema) < 1, f"ema must be in (0, 1), got {self.ema}")
        if self.clip_norm is not None:
            positive("clip_norm", self.clip_norm)
            warnings.warn(
                "clip_norm of a rule is now the work's: write "
                f"work=tg.OneGradient(clip_norm={self.clip_norm})",
                FutureWarning,
                stacklevel=3,
            )
        object.__setattr__(self, "no_decay", name_patterns("no_decay", self.no_decay))
        require(
            not self.no_decay or self.weight_decay > 0,
            "no_decay names tensors without weight decay, but weight_decay is 0 for all: leave "
            "no_decay out, or set weight_decay",
        )

        object.__setattr__(self, "rate_scale", checked_scales(self.rate_scale))

    @property
    def _scales(self) -> Scales:
        return self.rate_scale  # type: ignore[return-value]

    @property
    def takes_means(self) -> bool:
        """Whether it is known that a group of gradients at θ itself, none late, does what their
        mean does."""
        if type(self) is not Rule or self.within_group:
            return False
        return self.correction.takes_means and self.optimizer.takes_means

    @property
    def takes_weights(self) -> bool:
        """Whether gradients of a group may count for more or less than others: not where the
        optimizer keeps numbers of each worker's own, which a weighted mean would not reach."""
        takes = "weights" in inspect.signature(self.apply).parameters
        return takes and type(self.optimizer).start_own is Optimizer.start_own

    def start(self, theta: Tensor, layout: Layout) -> RuleState:
        average = () if self.ema is None else (theta.clone(),)
        correction, optimizer = self.correction, self.optimizer
        return RuleState(
            correction.start(theta, layout),
            optimizer.start(theta, layout),
            average,
            (layout.by_name(self._decays, theta),) if self.no_decay else (),
            scaled_parameters(self._scales, theta, layout),
        )

    def _decays(self, name: str) -> float:
        """Whether the tensor of that name does, as 1 or 0."""
        return 0.0 if any(fnmatchcase(name, pattern) for pattern in self.no_decay) else 1.0

    def check_names(self, layout: Layout) -> None:
        """Refuse a pattern that fits no tensor of the whole model."""
        patterns = [("no_decay", pattern) for pattern in self.no_decay]
        patterns += [("rate_scale", pattern) for pattern, _ in self._scales]
        for field_name, pattern in patterns:
            require(
                any(fnmatchcase(name, pattern) for name in layout.names),
                f"{field_name}: no tensor of the model is called {pattern!r}"
                f"{nearest(pattern, layout.names)}; there are {_some(layout.names)}",
            )

    def start_own(self, theta: Tensor, layout: Layout) -> RuleOwn:
        correction, optimizer = self.correction, self.optimizer
        return RuleOwn(correction.start_own(theta, layout), optimizer.start_own(theta, layout))

    def scalars(self, progress: Progress, scale: float = 1.0, age: int | None = None) -> "Scalars":
        """The host's part of an update, as Python floats in the order of `Now`.

        age: the updates that the state has seen, where they are not all that were made.
        """
        count, rate = (progress.updates if age is None else age) + 1, learning_rate(self.lr)
        return Scalars(
            rate.at(progress) * scale,
            rate.max * scale,
            self.correction.host(count),
            self.optimizer.host(count),
        )

    def apply(
        self,
        theta: Tensor,
        state: RuleState,
        owns: Sequence[RuleOwn],
        slots: Sequence[int],
        pushes: Sequence[Push],
        now: Now,
        layout: Layout,
        weights: Sequence[Tensor] = (),
    ) -> tuple[Tensor, RuleState, tuple[RuleOwn, ...]]:
        """One update from a group of gradients in worker order; pushes[i] is of owns[slots[i]].

        weights: w_i of each gradient, 0-dim, together 1. What would be a mean of the group is then
        Σ w_i x_i, and a step at η/M is one at η·w_i. None: all count the same.
        """
        if self.within_group and len(pushes) > 1:
            rates = [now.lr * weight for weight in weights] or [now.lr / len(pushes)] * len(pushes)
            rows = tuple(owns)
            for slot, push, lr in zip(slots, pushes, rates, strict=True):
                theta, state, rows = self._scaled_update(
                    theta, state, rows, (slot,), (push,), now._replace(lr=lr), layout
                )
        else:
            theta, state, rows = self._scaled_update(
                theta, state, owns, slots, pushes, now, layout, weights
            )
        if self.ema is not None:
            (average,) = state.average
            state = state._replace(average=(torch.lerp(average, theta, 1.0 - self.ema),))
        return theta, state, rows

    def _scaled_update(
        self,
        theta: Tensor,
        state: RuleState,
        owns: Sequence[RuleOwn],
        slots: Sequence[int],
        pushes: Sequence[Push],
        now: Now,
        layout: Layout,
        weights: Sequence[Tensor] = (),
    ) -> tuple[Tensor, RuleState, tuple[RuleOwn, ...]]:
        def update(now: Now) -> tuple[Tensor, RuleState, tuple[RuleOwn, ...]]:
            return self._update(theta, state, owns, slots, pushes, now, layout, weights)

        return self._at_own_rates(update, state, now)

    def _at_own_rates(self, compute: Callable[[Now], T], state: RuleState, now: Now) -> T:
        """What is computed from η, for each parameter with its own."""
        plain = compute(now)
        if not state.scaled:
            return plain
        rates = [now._replace(lr=now.lr * s, lr_max=now.lr_max * s) for _, s in self._scales]
        return cast(T, chosen(state.scaled, plain, [compute(one) for one in rates]))

    def _update(
        self,
        theta: Tensor,
        state: RuleState,
        owns: Sequence[RuleOwn],
        slots: Sequence[int],
        pushes: Sequence[Push],
        now: Now,
        layout: Layout,
        weights: Sequence[Tensor],
    ) -> tuple[Tensor, RuleState, tuple[RuleOwn, ...]]:
        if self.weight_decay and not self.decoupled:
            decay = self.weight_decay
            what = theta * state.decayed[0] if state.decayed else theta
            pushes = [p._replace(grad=torch.add(p.grad, what, alpha=decay)) for p in pushes]

        grads = [push.grad for push in pushes]
        own_steps = [own.optimizer for own in owns]
        average = mean(grads, weights)

        def tentative() -> Tensor:
            group = (slots[:1], [average]) if weights else (slots, grads)
            return self.optimizer.peek(theta, state.optimizer, own_steps, *group, now, layout)

        peek = Peek(tentative, lambda: self.optimizer.previous(state.optimizer))
        corrected = self.correction.observe(state.correction, average, peek, now, layout)
        own_rows = [own.correction for own in owns]
        signals = []
        for slot, push in zip(slots, pushes, strict=True):
            signal, own_rows[slot] = self.correction.correct(
                theta, corrected, own_rows[slot], push, now, layout
            )
            signals.append(signal)
        if weights:
            slots, signals = slots[:1], [combine(signals, weights)]
        stepped_theta, stepped, new_steps = self.optimizer.step(
            self._shrunk(theta, state, now), state.optimizer, own_steps, slots, signals, now, layout
        )
        rows = tuple(RuleOwn(c, o) for c, o in zip(own_rows, new_steps, strict=True))
        return stepped_theta, state._replace(correction=corrected, optimizer=stepped), rows

    def _shrunk(self, theta: Tensor, state: RuleState, now: Now) -> Tensor:
        """θ after decoupled weight decay."""
        if not (self.decoupled and self.weight_decay):
            return theta
        shrink = 1 - now.lr * self.weight_decay
        if not state.decayed:
            return theta * shrink
        (decayed,) = state.decayed
        return theta * (decayed * shrink + (1 - decayed))  # exactly shrink, or exactly 1

    def send(self, theta: Tensor, state: RuleState, now: Now, gradients: int) -> Tensor:
        """What workers receive after this update of so many gradients: their next view."""

        def sent(now: Now) -> Tensor:
            return self.optimizer.send(theta, state.optimizer, now, gradients)

        return self._at_own_rates(sent, state, now)

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

    def tensors(self) -> Now:
        """As 0-dim float64: rounded once, where torch.optim rounds its floats."""
        return Now(
            _scalar(self.lr),
            _scalar(self.lr_max),
            tuple(_scalar(x) for x in self.correction),
            tuple(_scalar(x) for x in self.optimizer),
        )


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
