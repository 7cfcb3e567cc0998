"""One gradient of one batch."""

from dataclasses import dataclass

from torch import Tensor

from tardigrad.tasks import Task, Turn
from tardigrad.work.clipping import check_clip_norm, clipped
from tardigrad.work.work import Delivery, Interrupted, Work, never


@dataclass(frozen=True)
class OneGradient(Work[tuple[()]]):
    """One gradient of one batch at the view: what workers do unless told otherwise.

    Args:
        clip_norm: a gradient whose norm exceeds this is scaled down to it before it is pushed.
            What servers and rules see of it, its gap included, is the clipped one. None: never.
    """

    clip_norm: float | None = None

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)

    def run(
        self,
        task: Task,
        view: Tensor,
        state: tuple[()],
        turn: Turn,
        batches: int,
        interrupted: Interrupted = never,
    ) -> Delivery[tuple[()]]:
        found = task.gradient(view, turn)
        return Delivery(found._replace(grad=clipped(found.grad, self.clip_norm)), ())
