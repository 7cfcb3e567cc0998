"""What a run leaves behind: parameters, history, schedule."""

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from tardigrad.core.checks import of_kind, require
from tardigrad.engine.observer import Ended
from tardigrad.links import Codec, Identity
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule, Traffic
from tardigrad.tasks import ModuleTask, Task
from tardigrad.work import AnyWork, OneGradient

Say = Callable[[str], None]
"""Is told, a line at a time, what an engine decided and why."""

ABOVE = {
    "plot": ("tardigrad.report.run_figure", "plot_run"),
    "html": ("tardigrad.report.page", "write_run_page"),
    "display": ("tardigrad.report.run_figure", "run_image"),
    "load": ("tardigrad.experiment.loading", "load_run"),
}
"""What rooms above this one do for a `Run`, looked up when it is asked for."""


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


class Provenance(NamedTuple):
    """What computed a run: with the same, and the same code, a replay has the same bits."""

    engine: Literal["exact", "fast", "ray"]
    """On Ray, the exact engine repeats it."""
    shard_by: Literal["slice", "tensor"] = "slice"
    threads: int = 1
    """Of torch, while gradients were computed."""
    chunk: int | None = None
    """The gradients that the fast engine computed at a time."""
    stopped: bool = False
    """Whether it ended before the schedule that it was given did."""
    computers: tuple[str, ...] = ()
    """Where: several, where it was resumed elsewhere or ran on Ray; none of older folders."""


@dataclass(repr=False)
class Run:
    """The end of a run, simulated or real. `average` is the running average of θ, where the rule
    keeps one; `traffic` counts what crossed the wire, both ways."""

    params: Tensor
    history: History
    schedule: Schedule
    buffers: tuple[Tensor, ...] = ()
    average: Tensor | None = None
    traffic: Traffic | None = None
    ended: Ended | None = None
    """What ended it."""
    task: Task | None = None
    """What was learned; it knows the names of tensors."""
    rule: Rule | None = None
    """How gradients were applied."""
    provenance: Provenance | None = None
    """What computed it; None of folders that do not tell."""
    work: AnyWork = field(default_factory=OneGradient)
    """What workers did between a pull and a push."""
    codec: Codec = field(default_factory=Identity)
    """In which form gradients were pushed."""

    @classmethod
    def load(
        cls,
        folder: str | Path,
        task: Task | None = None,
        rule: Rule | None = None,
        work: AnyWork | None = None,
        codec: Codec | None = None,
        trust_code: bool = False,
    ) -> "Run":
        """The finished run in a folder, simulated or real.

        task, rule, work, codec: those it was made with, where the folder has no spec that tells;
        without a task there is no `module`, and without a task and a rule no replay. trust_code:
        execute code that the folder's spec names, even if it was never run from this account.
        """
        of_kind("folder", folder, (str, PathLike), "the path of a run's folder", '"runs/first"')
        run: Run = _above("load")(folder, task, rule, work, codec, trust_code)
        return run

    def state_dict(self, average: bool = False) -> dict[str, Tensor]:
        """Parameters and running buffers by name, as `load_state_dict` of the model takes them.

        average: the running average of θ in the parameters' place.
        """
        task, params = self._learned(average)
        if isinstance(task, ModuleTask):
            state = task.trained(params, self.buffers).state_dict()
            return {name: tensor.detach() for name, tensor in state.items()}
        return {name: tensor.clone() for name, tensor in task.layout.unflatten(params).items()}

    def module(self, average: bool = False) -> nn.Module:
        """A copy of the model, trained, in evaluation mode; what it computes is plain PyTorch."""
        task, params = self._learned(average)
        if not isinstance(task, ModuleTask):
            raise ValueError(
                f"a {type(task).__name__} has no module: take run.params, or run.state_dict()"
            )
        return task.trained(params, self.buffers)

    def frame(self) -> Any:
        """The evaluations as a pandas DataFrame, a row each; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise ValueError(
                "run.frame() needs pandas: pip install pandas, or take run.history.records"
            ) from None
        return pandas.DataFrame(self.history.records)

    def plot(self, path: str | Path | None = None, by: Literal["time", "update"] = "time") -> Any:
        """The loss as a matplotlib figure: of the evaluations, or else of the batches.

        path: a file to write as well; its ending says how, such as .png, .pdf or .svg.
        by: against the schedule's time, or against updates.
        """
        return _above("plot")(self, path, by)

    def html(self, path: str | Path, beside: "Run | None" = None) -> None:
        """A page to look at and to send: one file with the timeline, a player and the curves.

        path: ends in .html.
        beside: another run, drawn below this one on the same clock.
        """
        _above("html")(self, path, beside)

    def _repr_html_(self) -> str:
        """What a notebook shows: the two lines, and the figure."""
        return f"<pre>{escape(repr(self))}</pre>{_above('display')(self)}"

    def _learned(self, average: bool) -> tuple[Task, Tensor]:
        require(self.task is not None, "this run does not know its task: take run.params")
        assert self.task is not None
        if not average:
            return self.task, self.params
        require(
            self.average is not None,
            "the rule kept no running average: make it with ema=0.999, or leave average out",
        )
        assert self.average is not None
        return self.task, self.average

    def __repr__(self) -> str:
        """Two lines: what ran, and what came of it."""
        of, updates = self.schedule, self.ended.updates if self.ended else self.schedule.updates
        last = self.history.records[-1] if self.history.records else {}
        found = [
            f"{name} {value:.4g}"
            for name, value in last.items()
            if name not in ("update", "wall_s") and isinstance(value, float)
        ]
        end = "" if self.ended is None else f", ended by {self.ended.by}"
        return (
            f"Run: {updates:,} updates by {of.workers} workers, {self.params.numel():,} "
            f"parameters{end}\n     {', '.join(found) or 'nothing was evaluated'}"
        )


def _above(what: str) -> Callable[..., Any]:
    module, name = ABOVE[what]
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
