"""What is learned: the interface that executors and workers see, and nothing of servers or time."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from tardigrad.core.layout import Layout

SPLITS = ("train", "validation", "test")


class Turn(NamedTuple):
    """Which batch this is: the worker's so manieth, and its place in the order of starts. Where a
    gradient is all that a worker pushes, these are its step and its row."""

    worker: int
    step: int
    row: int

    def later(self, batches: int) -> "Turn":
        """Of the same worker, so many batches later."""
        return Turn(self.worker, self.step + batches, self.row + batches)


class Gradient(NamedTuple):
    """What a worker computed at its view: the mean loss of its batch, the flat gradient, and the
    batch's statistics for running buffers (BatchNorm), empty for most models."""

    loss: Tensor
    grad: Tensor
    buffers: tuple[Tensor, ...] = ()


class Task(Protocol):
    """Initial parameters, the gradient of (view, turn), evaluation.

    `gradient` is a pure function: same view and turn, same bits. What it draws it takes from
    `core.keys`, or within `tasks.randomness.keyed`, as `ModuleTask` and `FunctionTask` do.
    """

    layout: Layout
    batch_size: int
    epoch_size: int
    """Samples in an epoch; 0 where the task has no data set."""

    @property
    def splits(self) -> Sequence[str]:
        """Those of SPLITS on which `evaluate` measures something."""
        ...

    def start(self) -> Tensor:
        """A fresh copy of the initial parameters, flat."""
        ...

    def gradient(self, view: Tensor, turn: Turn) -> Gradient: ...

    def start_buffers(self) -> tuple[Tensor, ...]:
        """Initial running buffers (BatchNorm), in a fixed order; empty for most models."""
        ...

    def fold(self, buffers: tuple[Tensor, ...], batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Running buffers after one more applied gradient's batch statistics."""
        ...

    def evaluate(
        self, params: Tensor, buffers: tuple[Tensor, ...], split: str
    ) -> Mapping[str, float]:
        """Metrics on "train", "validation" or "test"; empty where there is nothing to measure."""
        ...
