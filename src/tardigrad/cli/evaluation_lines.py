"""A line per evaluation, where no terminal shows how a run goes."""

import math
import time

from tardigrad.cli.console import err, tell
from tardigrad.engine import Observer, Started, Tick
from tardigrad.engine.observer import EvaluationRecord


class EvaluationLines(Observer):
    """Into a file or a pipe; on a terminal a bar or table shows more."""

    def __init__(self) -> None:
        self._total = self._first = self._last = 0
        self._began: float | None = None
        self._loss = math.nan

    def started(self, start: Started) -> None:
        self._total, self._first, self._last = start.total, start.updates, start.updates

    def updated(self, tick: Tick) -> None:
        if self._began is None:
            self._began, self._first = time.monotonic(), tick.updates
        self._loss = tick.loss

    def evaluated(self, record: EvaluationRecord) -> None:
        if err.is_terminal:
            return
        update = int(record["update"])
        words = [f"update {update:,} of {self._total:,}"]
        words += [f"{n} {v:.4g}" for n, v in record.items() if n.endswith(("_loss", "_accuracy"))]
        if "batch_loss" not in record and math.isfinite(self._loss):
            words.append(f"batch_loss {self._loss:.4g}")
        if self._began is not None and update > self._first:
            took = max(time.monotonic() - self._began, 1e-9)
            words.append(progress_words(update - self._first, took, self._total - update))
        tell(", ".join(words))


def progress_words(made: int, took_s: float, left: int) -> str:
    """The rate of updates, and how long those that are left will take."""
    rate = made / took_s
    return f"{rate:,.0f} updates/s, {_duration(left / rate)} left"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
