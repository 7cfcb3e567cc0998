"""What training is for: a loss to come down to, or an accuracy to come up to."""

import re
from dataclasses import dataclass
from typing import Literal

from tardigrad.core.checks import number, require
from tardigrad.engine import Evaluation
from tardigrad.engine.stop import Stop, measured_name
from tardigrad.tasks import Task

MEASURED = ("loss", "accuracy")
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class Target:
    """`loss` is reached from above, `accuracy` from below."""

    what: Literal["loss", "accuracy"]
    value: float

    def __post_init__(self) -> None:
        loss, accuracy = (self.value if self.what == what else None for what in MEASURED)
        Stop(loss, accuracy)  # it checks what it is given

    @staticmethod
    def of(text: str) -> "Target":
        """Of a text such as loss=0.5."""
        what, equals, value = text.partition("=")
        require(
            bool(equals) and what.strip() in MEASURED,
            f"target is loss=… or accuracy=…, such as loss=0.5, got {text!r}",
        )
        try:
            return Target(what.strip(), float(value))  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(f"target {text}: {str(error).removeprefix('stop: ')}") from None

    def __str__(self) -> str:
        return f"{self.what}={self.value:g}"

    def reached(self, value: float) -> bool:
        return self.gap(value) <= 0

    def gap(self, value: float) -> float:
        """How far there is to go: 0 or less where it is reached."""
        return value - self.value if self.what == "loss" else self.value - value

    def name(self, task: Task, evaluation: Evaluation) -> str:
        """What evaluations call it; refuses a target that they do not measure or that is reached
        before training."""
        require(
            bool(task.splits) and bool(evaluation.splits),
            f"target {self} is never measured: the task has nothing to evaluate on; give it a "
            'validation set and splits = ["validation"]',
        )
        name = measured_name(task, evaluation, self.what)
        measured = task.evaluate(task.start(), task.start_buffers(), evaluation.splits[0])
        require(
            self.what in measured,
            f"target {self} is never measured: an evaluation of this task gives "
            f"{', '.join(sorted(measured))}",
        )
        at_first = measured[self.what]
        require(
            not self.reached(at_first),
            f"target {self} is reached before training, at {self.what} = {at_first:.4g}",
        )
        return name


def seconds_of(field: str, text: str | float) -> float:
    """Of a text such as 90s, 5m, 1.5h or 2d; a bare number is seconds."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([smhd]?)\s*", str(text))
    try:
        value = number(field, float(found[1])) * SECONDS[found[2] or "s"] if found else 0.0
    except ValueError:
        value = 0.0
    require(value > 0, f"{field} is a time above 0, such as 90s, 5m or 2h, got {text!r}")
    return value
