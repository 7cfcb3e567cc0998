"""A progress bar with rate, loss and mean delay, for whatever takes longer than two seconds."""

import time

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tardigrad.cli.console import err
from tardigrad.core.arrays import Floats
from tardigrad.engine import Tick
from tardigrad.scheduling import Schedule

PATIENCE_S = 2.0
REFRESH_S = 0.1


class Watcher:
    """Called with every tick of an execution; shows nothing where nobody looks or it is quick."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._delay: Floats | None = None
        self._started = self._shown_at = time.monotonic()
        self._first: Tick | None = None
        self._progress: Progress | None = None

    def begin(self, schedule: Schedule | None) -> "Watcher":
        """What it watches is about to be executed; None: and to be made at the same time."""
        self._delay = None if schedule is None else _mean_delays(schedule)
        self._started = self._shown_at = time.monotonic()
        return self

    def __call__(self, tick: Tick) -> None:
        now = time.monotonic()
        self._first = self._first or tick
        if now - self._shown_at < REFRESH_S or not err.is_terminal:
            return
        if self._progress is None:
            if now - self._started < PATIENCE_S:
                return
            self._progress = bar()
            self._progress.start()
            self._bar = self._progress.add_task(self.label, total=tick.total, facts="")
        self._shown_at = now
        rate = (tick.updates - self._first.updates) / (now - self._started)
        facts = f"{rate:,.0f} updates/s  loss {tick.loss:.4g}"
        if self._delay is not None:
            facts += f"  mean delay {self._delay[tick.updates - 1]:.1f}"
        self._progress.update(self._bar, completed=tick.updates, facts=facts)

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def bar() -> Progress:
    """Not started yet; its tasks have a field `facts`, shown at the end."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[facts]}"),
        console=err,
        transient=True,
    )


def _mean_delays(schedule: Schedule) -> Floats:
    """After each update of shard 0, the mean delay of the gradients applied by then."""
    total = np.cumsum(schedule.delays)
    ends = schedule.group_start[1:][schedule.group_shard == 0]
    return np.asarray(total[ends - 1] / ends, dtype=np.float64)
