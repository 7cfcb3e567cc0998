"""When a run ends before all its updates are made."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from tardigrad.core.checks import count, number, positive, require
from tardigrad.engine.observer import Ended, EvaluationRecord
from tardigrad.engine.options import Evaluation
from tardigrad.tasks import FunctionTask, Task


@dataclass(frozen=True)
class Stop:
    """The run ends with the first of these that happens, or when all updates are made.

    Loss and accuracy are those of the first split that is evaluated; without splits, the loss is
    the mean batch loss between two evaluations. They are looked at when they are measured.
    """

    loss: float | None = None
    """Once the loss is no more than this."""
    accuracy: float | None = None
    """Once the accuracy is at least this share."""
    wall_s: float | None = None
    """Once it has taken so long by the clock, the time before a resume included."""
    virtual_s: float | None = None
    """With the first update at or after this time of the simulated cluster."""
    patience: int | None = None
    """After so many evaluations in a row without a new lowest loss."""

    def __post_init__(self) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        known = ", ".join(field.name for field in fields(self))
        require(bool(given), f"stop says nothing: give it some of {known}")
        if self.loss is not None:
            number("stop: loss", self.loss)
        if self.accuracy is not None:
            require(
                0 < number("stop: accuracy", self.accuracy) <= 1,
                f"stop: accuracy is a share, above 0 and up to 1, so {self.accuracy:g} would "
                "never do: write 0.95 for 95 %",
            )
        for name in ("wall_s", "virtual_s"):
            if getattr(self, name) is not None:
                positive(f"stop: {name}", getattr(self, name))
        if self.patience is not None:
            count("stop: patience", self.patience)

    @property
    def _measured(self) -> list[str]:
        return [n for n in ("loss", "accuracy", "patience") if getattr(self, n) is not None]

    def check(self, task: Task, evaluation: Evaluation, updates: int, clock: str) -> None:
        """Refuse what is never measured in this run, and what can never happen in it."""
        require(
            self.virtual_s is None or clock == "virtual",
            "stop: virtual_s is a time of a simulated cluster, "
            + (
                "and a run on Ray takes real time: use wall_s"
                if clock == "measured"
                else "but this one counts events, without seconds: use a cluster with step "
                "times, such as gamma"
            ),
        )
        if not self._measured:
            return
        says = ", ".join(self._measured)
        require(
            evaluation.every > 0,
            f"stop: {says} would never be measured, because the run evaluates nothing: give the "
            "updates between evaluations (evaluate_every = 50, or evaluation=50)",
        )
        times = -(-updates // evaluation.every) + 1
        require(
            self.patience is None or self.patience < times,
            f"stop: patience = {self.patience} can never happen: in {updates} updates there are "
            f"{times} evaluations: choose a smaller one, or evaluate more often",
        )
        split = _split(task, evaluation)
        if split is None:
            names = {"batch_loss"}
            require(
                not isinstance(task, FunctionTask) or task.gives_loss(),
                f"stop: {says} would never be measured: grad returns a gradient alone, whose loss "
                "is recorded as 0; return (loss, gradient) from it, or give FunctionTask evaluate=",
            )
        else:
            measured = task.evaluate(task.start(), task.start_buffers(), split)
            names = {f"{split}_{name}" for name in measured}
        for name in self._measured:
            wanted = measured_name(task, evaluation, "accuracy" if name == "accuracy" else "loss")
            require(
                wanted in names,
                f"stop: {name} would never be measured: an evaluation of this task gives "
                f"{', '.join(sorted(names)) or 'nothing'}, and no {wanted}",
            )

    def judged(
        self, records: Sequence[EvaluationRecord], task: Task, evaluation: Evaluation
    ) -> Ended | None:
        """Whether the run ends with the last of these evaluations."""
        last = records[-1]
        update = int(last["update"])
        loss = measured_name(task, evaluation, "loss")
        if self.loss is not None and last.get(loss, float("inf")) <= self.loss:
            why = f"{loss} came down to {last[loss]:.6g}, the target is {self.loss:g}"
            return Ended("loss", why, update)
        share = measured_name(task, evaluation, "accuracy")
        if self.accuracy is not None and last.get(share, 0.0) >= self.accuracy:
            why = f"{share} came up to {last[share]:.6g}, the target is {self.accuracy:g}"
            return Ended("accuracy", why, update)
        if self.patience is not None:
            known = [(record[loss], record["update"]) for record in records if loss in record]
            best = min(range(len(known)), key=lambda i: known[i][0], default=0)
            if known and len(known) - 1 - best >= self.patience:
                least, at = known[best]
                why = (
                    f"{loss} has not been lower than {least:.6g} of update {int(at):,} for "
                    f"{self.patience} evaluations"
                )
                return Ended("patience", why, update)
        return None

    def by_clock(self, wall_s: float, time_s: float, updates: int) -> Ended | None:
        """Whether the time is up."""
        if self.wall_s is not None and wall_s >= self.wall_s:
            return Ended("wall_s", f"it has taken {self.wall_s:g} s", updates)
        if self.virtual_s is not None and time_s >= self.virtual_s:
            return Ended("virtual_s", f"{self.virtual_s:g} s of virtual time are over", updates)
        return None


def measured_name(task: Task, evaluation: Evaluation, what: str) -> str:
    """What an evaluation's record calls the loss or accuracy that is looked at."""
    split = _split(task, evaluation)
    return f"batch_{what}" if split is None else f"{split}_{what}"


def _split(task: Task, evaluation: Evaluation) -> str | None:
    return evaluation.splits[0] if evaluation.splits and task.splits else None
