"""No correction."""

from dataclasses import dataclass

from torch import Tensor

from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Nothing, Now, Push, Signal


@dataclass(frozen=True)
class Raw(Correction[Nothing, Nothing]):
    """g as it is."""

    takes_means = True

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        return Signal(push.grad, push.grad), own
