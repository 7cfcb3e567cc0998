"""One gradient of one batch."""

from dataclasses import dataclass

from torch import Tensor

from tardigrad.tasks import Task, Turn
from tardigrad.work.work import Delivery, Interrupted, Work, never


@dataclass(frozen=True)
class OneGradient(Work[tuple[()]]):
    """One gradient of one batch at the view: what workers do unless told otherwise."""

    def run(
        self,
        task: Task,
        view: Tensor,
        state: tuple[()],
        turn: Turn,
        batches: int,
        interrupted: Interrupted = never,
    ) -> Delivery[tuple[()]]:
        return Delivery(task.gradient(view, turn), ())
