"""What a run leaves behind: parameters, history, schedule."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from tardigrad.engine.observer import Ended
from tardigrad.scheduling import Schedule, Traffic

Say = Callable[[str], None]
"""Is told, a line at a time, what an engine decided and why."""


class Diverged(ArithmeticError):
    """The loss, a gradient or a parameter became NaN or infinite."""

    def __init__(self, update: int, worker: int, value: float, what: str = "the loss") -> None:
        self.update, self.worker, self.value, self.what = update, worker, value, what
        super().__init__(
            f"{what} became {value} at update {update}, in a gradient of worker {worker}: "
            "the run has diverged; try a smaller lr"
        )

    def __reduce__(self) -> tuple[type["Diverged"], tuple[int, int, float, str]]:
        """So that it can come from another process."""
        return Diverged, (self.update, self.worker, self.value, self.what)


@dataclass
class History:
    """How a run went.

    `records`: one dictionary per evaluation, the first before any update. `loss`: the mean batch
    loss of each update (of shard 0, where there are several). Where measured, one per gradient
    applied at shard 0: `gap`, the root mean square of θ − view; `b_staleness`, ‖g(view) − g(θ)‖
    over all parameters, both gradients on the same batch.
    """

    records: list[dict[str, float]] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    b_staleness: list[float] = field(default_factory=list)

    def column(self, name: str) -> list[float]:
        """One quantity over the evaluations that have it."""
        return [record[name] for record in self.records if name in record]


@dataclass
class Run:
    """The end of a run. `average` is the running average of θ, where the rule keeps one; `traffic`
    counts what crossed the wire, both ways."""

    params: Tensor
    history: History
    schedule: Schedule
    buffers: tuple[Tensor, ...] = ()
    average: Tensor | None = None
    traffic: Traffic | None = None
    ended: Ended | None = None
    """What ended it."""
