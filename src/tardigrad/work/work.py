"""What a worker does between a pull and a push: the interface that executors and workers see."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.core.layout import Layout
from tardigrad.core.trees import leaves
from tardigrad.tasks import Gradient, Task, Turn

Kept = TypeVar("Kept")
"""What a worker keeps for itself."""
Interrupted = Callable[[], bool]


def never() -> bool:
    return False


class Delivery(NamedTuple, Generic[Kept]):
    """What is pushed, and what the worker keeps for its next row."""

    gradient: Gradient
    """What the server takes for a gradient: it is subtracted. Buffers of all batches, in order."""
    state: Kept


class Work(ABC, Generic[Kept]):
    """A frozen dataclass. `run` is a pure function, so that recovery and replay can repeat it.

    A row takes `batches` batches of its worker's own sequence, and so many step times.
    """

    @property
    def batches(self) -> int:
        return 1

    def start(self, task: Task, theta: Tensor) -> Kept:
        """What a worker keeps for itself from row to row, as nested tuples of tensors; () where it
        keeps nothing. It begins anew in a process that takes a dead worker's place."""
        return ()  # type: ignore[return-value]

    @abstractmethod
    def run(
        self,
        task: Task,
        view: Tensor,
        state: Kept,
        turn: Turn,
        batches: int,
        interrupted: Interrupted = never,
    ) -> Delivery[Kept] | None:
        """Do the work of one row; `turn` is its first batch, `turn.later(1)` the next.

        Asked between batches, `interrupted` says whether the row no longer counts: then the answer
        is None, and the worker's state stays what it was.
        """

    def check_names(self, layout: Layout) -> None:
        """Refuse patterns, of a rule of the worker's own, that fit no tensor of the whole model."""
        return

    def keeps_state(self, task: Task) -> bool:
        state = self.start(task, task.start())
        try:
            return bool(leaves(state))
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}.start: {error}") from None


AnyWork = Work[Any]


def delivered(made: Delivery[Kept] | None) -> Delivery[Kept]:
    """Of a row that nobody interrupts."""
    if made is None:
        raise ValueError(
            "the work returned None, which says that it was interrupted, but nobody has: "
            "return tg.Delivery(gradient, state)"
        )
    return made


def changes_in_place(view: Tensor, state: Any) -> list[int]:
    """How often each tensor that a work is given was changed in place, as torch counts it."""
    return [tensor._version for tensor in (view, *leaves(state))]


def check_unchanged(view: Tensor, state: Any, before: list[int]) -> None:
    """Refuse a work that changes its inputs in place: other workers may hold the same view."""
    require(
        before == changes_in_place(view, state),
        "the work changed its view or its state in place, so that what others still hold changed "
        "with it: write x = x + y, not x += y or x.add_(y)",
    )


def by_batch(found: tuple[Tensor, ...], batches: int) -> Iterator[tuple[Tensor, ...]]:
    """The buffers of each of so many batches; none where there are none."""
    each = len(found) // batches
    for at in range(0, len(found), each or 1):
        yield found[at : at + each]
