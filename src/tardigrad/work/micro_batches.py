"""The mean gradient of several batches at one view."""

from dataclasses import dataclass

from torch import Tensor

from tardigrad.core.checks import count
from tardigrad.rules import mean
from tardigrad.tasks import Gradient, Task, Turn
from tardigrad.work.clipping import check_clip_norm, clipped
from tardigrad.work.work import Delivery, Interrupted, Work, never


@dataclass(frozen=True)
class MicroBatches(Work[tuple[()]]):
    """The mean gradient of `size` batches at one view, computed one after another.

    What gradient accumulation does where a batch does not fit; between two of them the worker can
    be interrupted.

    Args:
        size: how many batches.
        clip_norm: their mean is scaled down to this norm where it exceeds it, as those who
            accumulate gradients do (a choice: not each batch's own). None: never.
    """

    size: int
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        count("size", self.size)
        check_clip_norm(self.clip_norm)

    @property
    def batches(self) -> int:
        return self.size

    def run(
        self,
        task: Task,
        view: Tensor,
        state: tuple[()],
        turn: Turn,
        batches: int,
        interrupted: Interrupted = never,
    ) -> Delivery[tuple[()]] | None:
        found: list[Gradient] = []
        for k in range(batches):
            if k and interrupted():
                return None
            found.append(task.gradient(view, turn.later(k)))
        loss = mean([one.loss for one in found])
        grad = clipped(mean([one.grad for one in found]), self.clip_norm)
        return Delivery(Gradient(loss, grad, tuple(b for one in found for b in one.buffers)), ())
