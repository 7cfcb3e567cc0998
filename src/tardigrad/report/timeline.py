"""Who computed, waited and was dropped, as a picture."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from tardigrad.core.arrays import Ints
from tardigrad.core.checks import count
from tardigrad.report.clocks import CLOCKS, tick_text
from tardigrad.scheduling import Schedule

OUTCOMES = ("applied", "partly dropped", "dropped", "merged", "unfinished")
COLOURS = {
    "applied": "#2a7f9e",
    "partly dropped": "#e0a030",
    "dropped": "#c8402f",
    "merged": "#8a6fb0",
    "unfinished": "#b8d4de",
    "waiting": "#e3e3e3",
    "absent": "#ffffff",
}
HATCHES = {"absent": "////"}


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
    return out


def draw_timeline(
    schedule: Schedule,
    path: str | Path,
    first_s: float = 0.0,
    last_s: float | None = None,
    workers: int = 40,
    title: str | None = None,
) -> None:
    """A picture of the first `workers` workers from first_s to last_s.

    Without last_s it shows about twelve gradients of each worker.
    """
    count("workers", workers)
    shown = min(workers, schedule.workers)
    if last_s is None:
        last_s = schedule.end_time
        rows_shown = int(12 * schedule.workers)
        if schedule.rows > rows_shown:
            last_s = min(last_s, first_s + float(schedule.start_s[rows_shown]))
    happened = spans(schedule, last_s)
    kinds = [kind for kind in COLOURS if any(s.what == kind and s.worker < shown for s in happened)]
    figure = Figure(figsize=(10, 1.7 + 0.16 * shown), layout="constrained")
    axes = figure.subplots()
    for kind in kinds:
        boxes = [
            [(a, w - 0.4), (b, w - 0.4), (b, w + 0.4), (a, w + 0.4)]
            for w, a, b, what, _ in happened
            if what == kind and w < shown and b > first_s
        ]
        edge = "#999999" if kind == "absent" else "white"
        boxed = PolyCollection(
            boxes,
            facecolor=COLOURS[kind],
            edgecolor=edge,
            linewidth=0.4,
            hatch=HATCHES.get(kind),
        )
        axes.add_collection(boxed)
    at_first = schedule.group_shard == 0
    updates_s = schedule.group_time_s[at_first & (schedule.group_time_s <= last_s)]
    axes.vlines(updates_s, -1.5, -0.8, color="#333333", linewidth=0.6)
    axes.set_xlim(first_s, last_s)
    axes.set_ylim(shown - 0.4, -1.7)
    ticks = [w for w in range(shown) if shown <= 16 or w % 5 == 0]
    axes.set_yticks([-1.15, *ticks], ["updates", *map(str, ticks)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    axes.set_ylabel("worker")
    axes.set_xlabel(CLOCKS[schedule.clock].label)
    axes.set_title(title or _title(schedule, shown), loc="left", fontsize=10)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(
        handles=[
            Patch(facecolor=COLOURS[k], edgecolor="#999999", hatch=HATCHES.get(k), label=k)
            for k in kinds
        ],
        loc="outside lower center",
        ncols=len(kinds),
        frameon=False,
        fontsize=9,
    )
    figure.savefig(path, dpi=130)


def _title(schedule: Schedule, shown: int) -> str:
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
    gone = _absences(schedule, end_s)
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


def _absences(schedule: Schedule, end_s: float) -> dict[int, list[tuple[float, float]]]:
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
