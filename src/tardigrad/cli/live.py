"""A run on Ray as it goes: a table of its workers and one of its shards."""

import math
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live as Screen

from tardigrad.cli.console import err
from tardigrad.cli.evaluation_lines import progress_words
from tardigrad.core.text_table import TextTable

if TYPE_CHECKING:
    from tardigrad.runtime import Live

PATIENCE_S = 2.0
WORKER = ("worker", "steps", "per second", "mean delay", "waiting", "dropped")
SHARD = ("shard", "version", "queue", "MB in", "MB out")


class LiveTable:
    """Shown where somebody looks and the run takes longer than two seconds; then taken away."""

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self._started = time.monotonic()
        self._screen: Screen | None = None
        self._first: Live | None = None

    def show(self, live: "Live") -> None:
        self._first = self._first or live
        if not err.is_terminal or time.monotonic() - self._started < PATIENCE_S:
            return
        if self._screen is None:
            self._screen = Screen(console=err, transient=True, auto_refresh=False)
            self._screen.start()
        self._screen.update(tables(live, self._first, self.updates), refresh=True)

    def __enter__(self) -> "LiveTable":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._screen is not None:
            self._screen.stop()


def tables(live: "Live", first: "Live", updates: int) -> Group:
    """Rates and waiting are since `first`."""
    took = max(live.time_s - first.time_s, 1e-9)
    workers = list[tuple[str, ...]]()
    for worker, where in live.workers.items():
        before = first.workers.get(worker)
        steps = where.steps - (before.steps if before else 0)
        busy = where.busy_s - (before.busy_s if before else 0.0)
        counts = [shard.delays.get(worker, (0, 0)) for shard in live.shards]
        applied, late = sum(c for c, _ in counts), sum(d for _, d in counts)
        # Of gradients, not of their slices: shards mostly drop the same ones.
        dropped = max(shard.dropped.get(worker, 0) for shard in live.shards)
        row = (
            str(worker),
            f"{where.steps:,}",
            f"{steps / took:.1f}",
            f"{late / applied:.1f}" if applied else "",
            f"{max(0.0, 1 - busy / took):.0%}",
            f"{dropped:,}",
        )
        workers.append(row)
    shards = [
        (
            str(number),
            f"{shard.version:,} of {updates:,}",
            str(shard.queue),
            f"{shard.bytes_in / 1e6:,.1f}",
            f"{shard.bytes_out / 1e6:,.1f}",
        )
        for number, shard in enumerate(live.shards)
    ]
    return Group(
        _line(live, first, updates), "", TextTable(WORKER, workers), "", TextTable(SHARD, shards)
    )


def _line(live: "Live", first: "Live", updates: int) -> str:
    """How far it has come, its loss, and how long it will take."""
    now, then = (min(shard.version for shard in seen.shards) for seen in (live, first))
    words = [f"update {now:,} of {updates:,}"]
    loss = live.shards[0].loss
    words += [f"loss {loss:.4g}"] if math.isfinite(loss) else []
    if now > then:
        words.append(progress_words(now - then, live.time_s - first.time_s, updates - now))
    return ", ".join(words)
