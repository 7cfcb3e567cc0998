"""Learning rates that change: against updates, against samples in applied gradients, or epochs.

An epoch is `epoch_size` samples in *applied* gradients (a choice: dropped ones taught nothing).
Nothing here touches the optimizers' buffers. They hold gradients, not steps, so when the rate
changes past momentum follows at once; the momentum correction of Goyal et al. (2017) is needed only
where the rate sits inside the buffer.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from tardigrad.core.checks import count, not_negative, number, one_of, positive, require

Unit = Literal["updates", "samples", "epochs"]
UNITS: tuple[Unit, ...] = ("updates", "samples", "epochs")


class Progress(NamedTuple):
    """How far a shard has come: updates and samples applied before the one now being made."""

    updates: int = 0
    samples: int = 0
    epoch_size: int = 0

    def measure(self, unit: Unit) -> float:
        if unit == "updates":
            return float(self.updates)
        if unit == "samples":
            return float(self.samples)
        if self.epoch_size <= 0:
            raise ValueError(
                'the learning rate is given by="epochs", but this task has no data set and so no '
                'epochs: use by="updates"'
            )
        return self.samples / self.epoch_size


class LearningRate(ABC):
    """A rate η as a function of progress; `max` is its largest value over the whole run, NaN where
    that is not known."""

    @abstractmethod
    def at(self, progress: Progress) -> float: ...

    @property
    @abstractmethod
    def max(self) -> float: ...


Rate = float | LearningRate | Callable[[int], float]
"""A number, a rate, or a function of the updates made so far."""


@dataclass(frozen=True)
class ConstantRate(LearningRate):
    """η."""

    lr: float

    def __post_init__(self) -> None:
        positive("lr", self.lr)

    def at(self, progress: Progress) -> float:
        return self.lr

    @property
    def max(self) -> float:
        return self.lr


@dataclass(frozen=True)
class FunctionRate(LearningRate):
    """η = function(updates made so far), a pure function of one's own.

    `largest` is its largest value over the whole run, where that is known: Gap-Aware asks for it.
    """

    function: Callable[[int], float]
    largest: float | None = None

    def __post_init__(self) -> None:
        require(callable(self.function), f"lr must be a function, got {self.function!r}")
        if self.largest is not None:
            positive("largest", self.largest)
        self.at(Progress())

    def at(self, progress: Progress) -> float:
        try:
            value = self.function(progress.updates)
        except TypeError as error:
            raise ValueError(
                f"lr({progress.updates}) failed ({error}): a rate takes the number of updates made "
                "so far, as lambda update: 0.1 / (1 + update) does"
            ) from error
        not_negative(f"what lr({progress.updates}) returns", value)
        return float(value)

    @property
    def max(self) -> float:
        return math.nan if self.largest is None else self.largest


@dataclass(frozen=True)
class StepRate(LearningRate):
    """η · factor^(number of milestones passed).

    Args:
        milestones: when the rate falls, in the unit of `by`.
        factor: what it is multiplied by.
    """

    lr: float
    milestones: tuple[float, ...]
    factor: float = 0.1
    by: Unit = "updates"

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("factor", self.factor)
        one_of("by", self.by, UNITS)
        for i, milestone in enumerate(self.milestones):
            not_negative(f"milestones[{i}]", milestone)
        require(
            list(self.milestones) == sorted(set(self.milestones)),
            f"milestones must increase, got {list(self.milestones)}",
        )

    def at(self, progress: Progress) -> float:
        now = progress.measure(self.by)
        return self.lr * self.factor ** sum(now >= m for m in self.milestones)

    @property
    def max(self) -> float:
        return self.lr * max(1.0, self.factor ** len(self.milestones))


@dataclass(frozen=True)
class _Anneal(LearningRate):
    """η until `start`, from there to `final` over `over`, then `final`: what the ways of getting
    there share.

    Args:
        final: the rate at the end.
        start: when it begins to fall, in the unit of `by`.
    """

    lr: float
    over: float
    final: float = 0.0
    by: Unit = "updates"
    start: float = 0.0

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("over", self.over)
        not_negative("final", self.final)
        not_negative("start", self.start)
        one_of("by", self.by, UNITS)

    def _share(self, progress: Progress) -> float:
        """How much of the way is done."""
        return min(1.0, max(0.0, progress.measure(self.by) - self.start) / self.over)

    @property
    def max(self) -> float:
        return max(self.lr, self.final)


class LinearRate(_Anneal):
    """η until `start`, to `final` in a straight line over `over`, then `final`."""

    def at(self, progress: Progress) -> float:
        return self.lr + (self.final - self.lr) * self._share(progress)


class CosineRate(_Anneal):
    """η until `start`, to `final` along half a cosine over `over`, then `final`."""

    def at(self, progress: Progress) -> float:
        half = 0.5 * (1.0 + math.cos(math.pi * self._share(progress)))
        return self.final + (self.lr - self.final) * half


@dataclass(frozen=True)
class ExponentialRate(LearningRate):
    """η · decay^(progress / over).

    Args:
        decay: what it is multiplied by every `over`.
    """

    lr: float
    decay: float
    over: float = 1.0
    by: Unit = "updates"

    def __post_init__(self) -> None:
        positive("lr", self.lr)
        positive("over", self.over)
        require(0 < number("decay", self.decay) <= 1, f"decay must be in (0, 1], got {self.decay}")
        one_of("by", self.by, UNITS)

    def at(self, progress: Progress) -> float:
        return float(self.lr * self.decay ** (progress.measure(self.by) / self.over))

    @property
    def max(self) -> float:
        return self.lr


@dataclass(frozen=True)
class WarmUpRate(LearningRate):
    """From η/N in a straight line to η over the first `over` epochs, then `after` (Goyal 2017).

    Args:
        after: what follows: a number, or another rate, which η is of.
    """

    after: Rate
    workers: int
    over: float = 5.0
    by: Unit = "epochs"

    def __post_init__(self) -> None:
        object.__setattr__(self, "after", learning_rate(self.after))
        positive("over", self.over)
        count("workers", self.workers)
        one_of("by", self.by, UNITS)

    def at(self, progress: Progress) -> float:
        share = min(1.0, progress.measure(self.by) / self.over)
        rate = learning_rate(self.after).at(progress)
        return rate * (1.0 / self.workers + (1.0 - 1.0 / self.workers) * share)

    @property
    def max(self) -> float:
        return learning_rate(self.after).max


function, step, linear, cosine, exponential, warm_up = (
    FunctionRate,
    StepRate,
    LinearRate,
    CosineRate,
    ExponentialRate,
    WarmUpRate,
)

RATES: dict[str, type[LearningRate]] = {
    "constant": ConstantRate,
    "step": StepRate,
    "linear": LinearRate,
    "cosine": CosineRate,
    "exponential": ExponentialRate,
    "warm_up": WarmUpRate,
}


def learning_rate(lr: Rate) -> LearningRate:
    """A number becomes a constant rate, a function a rate; a rate stays what it is."""
    if isinstance(lr, LearningRate):
        return lr
    if callable(lr):
        return FunctionRate(lr)
    positive("lr", lr)
    return ConstantRate(float(lr))


def __getattr__(name: str) -> type[LearningRate]:
    """The names of 0.1, which clusters have too."""
    if f"{name}Rate" not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"rates.{name} is now rates.{name}Rate", FutureWarning, stacklevel=2)
    return cast(type[LearningRate], globals()[f"{name}Rate"])
