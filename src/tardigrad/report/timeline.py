"""Who computed, waited and was dropped, as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tardigrad.core.arrays import Ints
from tardigrad.core.checks import count
from tardigrad.report.clocks import clock_of, tick_text
from tardigrad.report.pushes import pushes
from tardigrad.scheduling import Schedule

MOST_WORKERS = 40
"""Whose lanes a picture has, unless it is told another number."""
OUTCOMES = ("applied", "partly dropped", "dropped", "merged", "unfinished", "interrupted")
COLOURS = {
    "partly dropped": "#e0a030",
    "dropped": "#c8402f",
    "interrupted": "#eeb9a2",
    "merged": "#8a6fb0",
    "unfinished": "#b8d4de",
    "waiting": "#e3e3e3",
    "absent": "#ffffff",
}
"""Of what has no delay."""
HATCHES = {"absent": "////", "dropped": "xxxx", "partly dropped": "xx", "interrupted": "\\\\\\\\"}


class Span(NamedTuple):
    """What one worker did for a while: an outcome of its gradient, "waiting" or "absent"."""

    worker: int
    from_s: float
    to_s: float
    what: str
    row: int = -1


def push_outcomes(schedule: Schedule) -> Ints:
    """What became of each row: an index into OUTCOMES."""
    rows = schedule.rows
    applied = np.bincount(schedule.group_rows, minlength=rows) > 0
    dropped = np.bincount(schedule.drop_row[schedule.lost], minlength=rows) > 0
    merged = np.bincount(schedule.drop_row[~schedule.lost], minlength=rows) > 0
    out = np.full(rows, OUTCOMES.index("unfinished"))
    out[merged] = OUTCOMES.index("merged")
    out[dropped] = OUTCOMES.index("dropped")
    out[applied] = OUTCOMES.index("applied")
    out[applied & dropped] = OUTCOMES.index("partly dropped")
    out[schedule.interrupted] = OUTCOMES.index("interrupted")
    return out


def draw_timeline(
    schedule: Schedule,
    path: str | Path,
    first_s: float = 0.0,
    last_s: float | None = None,
    workers: int = MOST_WORKERS,
    title: str | None = None,
) -> None:
    """A picture of the first `workers` workers from first_s to last_s, coloured by delay.

    Without last_s it shows about twelve gradients of each worker.
    """
    named = {title or panel_title(schedule, min(workers, schedule.workers)): schedule}
    draw_timelines(named, path, first_s, last_s, workers)


def draw_timelines(
    schedules: Mapping[str, Schedule],
    path: str | Path,
    first_s: float = 0.0,
    last_s: float | None = None,
    workers: int = MOST_WORKERS,
    heading: str | None = None,
) -> None:
    """The same of several by title, one above the other: one clock, one scale of colours.

    heading: what all of them are.
    """
    count("workers", workers)
    given = list(schedules.values())
    if last_s is None:
        last_s = max(_about_twelve_each(schedule, first_s) for schedule in given)
    shown = [min(workers, schedule.workers) for schedule in given]
    panels = [_Panel(s, n, first_s, last_s) for s, n in zip(given, shown, strict=True)]
    most = max((panel.largest for panel in panels), default=0)
    scale = ScalarMappable(Normalize(0, max(1, most)), delay_colours())
    heights = [1.2 + 0.16 * n for n in shown]
    figure = Figure(figsize=(10, sum(heights) + 0.6), layout="constrained")
    every = figure.subplots(len(given), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, panel, title in zip(every, panels, schedules, strict=True):
        panel.draw(axes, scale, title)
    if heading is not None:
        figure.suptitle(heading, x=0.01, ha="left", fontsize=11)
    every[-1].set_xlabel(_clock_label(given))
    figure.colorbar(
        scale,
        ax=list(every),
        label="delay (updates)",
        aspect=30,
        pad=0.01,
        ticks=MaxNLocator(integer=True),
    )
    kinds = [kind for kind in COLOURS if any(kind in panel.kinds for panel in panels)]
    figure.legend(
        handles=[
            Patch(facecolor=COLOURS[k], edgecolor="#999999", hatch=HATCHES.get(k), label=k)
            for k in kinds
        ],
        loc="outside lower center",
        ncols=max(1, len(kinds)),
        frameon=False,
        fontsize=9,
    )
    figure.savefig(path, dpi=130)


def delay_colours() -> Colormap:
    """From dark for 0 to light for late; without the ends, which vanish on black and on white."""
    ends = matplotlib.colormaps["viridis"](np.linspace(0.16, 0.93, 256))
    return ListedColormap(ends, "delay")


def _about_twelve_each(schedule: Schedule, first_s: float) -> float:
    rows = 12 * schedule.workers
    end_s = schedule.end_time
    return min(end_s, first_s + float(schedule.start_s[rows])) if schedule.rows > rows else end_s


def _clock_label(schedules: Sequence[Schedule]) -> str:
    return clock_of({"clock": schedule.clock} for schedule in schedules).label


class _Panel:
    """One schedule's lanes."""

    def __init__(self, schedule: Schedule, shown: int, first_s: float, last_s: float) -> None:
        self._schedule, self._shown = schedule, shown
        self._ends = first_s, last_s
        end_s = min(last_s, schedule.end_time)  # others may go on after it has ended
        seen = [s for s in spans(schedule, end_s) if s.worker < shown and s.to_s > first_s]
        self._seen = seen
        self.kinds = {span.what for span in seen} - {"applied"}
        self._delays = pushes(schedule).latest
        self.largest = max((int(self._delays[s.row]) for s in seen if s.row >= 0), default=0)

    def draw(self, axes: Axes, scale: ScalarMappable, title: str) -> None:
        first_s, last_s = self._ends
        axes.add_collection(self._by_delay(scale))
        for kind in (kind for kind in COLOURS if kind in self.kinds):
            boxed = PolyCollection(
                [_box(span) for span in self._seen if span.what == kind],
                facecolor=COLOURS[kind],
                edgecolor="#999999" if kind == "absent" else "white",
                linewidth=0.4,
                hatch=HATCHES.get(kind),
            )
            axes.add_collection(boxed)
        at_first = self._schedule.group_shard == 0
        updates_s = self._schedule.group_time_s[at_first & (self._schedule.group_time_s <= last_s)]
        axes.vlines(updates_s, -1.5, -0.8, color="#333333", linewidth=0.6)
        axes.set_xlim(first_s, last_s if last_s > first_s else first_s + 1)
        axes.set_ylim(self._shown - 0.4, -1.7)
        ticks = [w for w in range(self._shown) if self._shown <= 16 or w % 5 == 0]
        axes.set_yticks([-1.15, *ticks], ["updates", *map(str, ticks)])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
        axes.set_ylabel("worker")
        axes.set_title(title, loc="left", fontsize=10)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(axis="y", length=0)

    def _by_delay(self, scale: ScalarMappable) -> PolyCollection:
        applied = [span for span in self._seen if span.what == "applied"]
        return PolyCollection(
            [_box(span) for span in applied],
            array=self._delays[[span.row for span in applied]],
            cmap=scale.cmap,
            norm=scale.norm,
            edgecolor="white",
            linewidth=0.4,
        )


def _box(span: Span) -> list[tuple[float, float]]:
    low, high = span.worker - 0.4, span.worker + 0.4
    return [(span.from_s, low), (span.to_s, low), (span.to_s, high), (span.from_s, high)]


def panel_title(schedule: Schedule, shown: int) -> str:
    """Its policy, and how many of its workers are shown."""
    policy = schedule.about.get("policy", {}).get("name", "")
    who = (
        f"{shown} of {schedule.workers} workers"
        if shown < schedule.workers
        else (f"{schedule.workers} workers")
    )
    return f"{policy}: {who}" if policy else who


def spans(schedule: Schedule, end_s: float) -> list[Span]:
    """Everything that begins before end_s, cut off there."""
    became = push_outcomes(schedule)
    gone = absences(schedule, end_s)
    out = [Span(w, a, b, "absent") for w, stays in gone.items() for a, b in stays]
    by_worker = np.argsort(schedule.worker, kind="stable")
    following = dict(zip(by_worker[:-1].tolist(), by_worker[1:].tolist(), strict=True))
    for row in np.nonzero(schedule.start_s < end_s)[0].tolist():
        worker, began = int(schedule.worker[row]), float(schedule.start_s[row])
        next_row = following.get(row)
        if next_row is not None and schedule.worker[next_row] != worker:
            next_row = None
        left = min((a for a, _ in gone.get(worker, ()) if a >= began), default=end_s)
        ended = float(schedule.end_s[row])
        until = min(left, end_s) if np.isnan(ended) else min(ended, end_s)
        out.append(Span(worker, began, until, OUTCOMES[became[row]], row))
        begins = min(left, end_s if next_row is None else float(schedule.start_s[next_row]), end_s)
        if begins > until:
            out.append(Span(worker, until, begins, "waiting"))
    return out


def absences(schedule: Schedule, end_s: float) -> dict[int, list[tuple[float, float]]]:
    """Per worker, from when to when it was away."""
    out: dict[int, list[tuple[float, float]]] = {}
    away: dict[int, float] = {}
    for worker, joined, at_s in zip(
        schedule.member_worker.tolist(),
        schedule.member_joined.tolist(),
        schedule.member_time_s.tolist(),
        strict=True,
    ):
        if not joined:
            away[worker] = at_s
        elif worker in away:
            out.setdefault(worker, []).append((away.pop(worker), min(at_s, end_s)))
    for worker, at_s in away.items():
        out.setdefault(worker, []).append((at_s, end_s))
    return {w: [(a, b) for a, b in stays if a < b] for w, stays in out.items()}
