"""A sweep as one figure: every point's curve, and where each ends."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tardigrad.report.clocks import MIXED, clock_of
from tardigrad.report.figures import COLOURS, DPI, STYLES, fit_x, line_of, log_loss, log_ticks
from tardigrad.report.sweep import Sweep, Swept, is_numeric, value_text


def draw_sweep(sweep: Sweep, path: str | Path) -> None:
    """Every point's curve, coloured by the first axis, seeds aside; beside them, where there is an
    axis of numbers, the loss at the end against it."""
    axes_kept = [key for key in sweep.keys if len(sweep.values(key)) > 1 and key != "seed"]
    first = (axes_kept or sweep.keys)[0]
    numeric = [key for key in axes_kept if all(map(is_numeric, sweep.values(key)))]
    against = numeric[0] if numeric and sweep.loss else None
    panels = 2 if against else 1
    figure = Figure(figsize=(6.2 * panels, 4.8), layout="constrained")
    looks = _looks(sweep.values(first))
    figure.suptitle(sweep.title, x=0.01, ha="left", fontsize=11)
    panel = figure.add_subplot(1, panels, 1)
    _curves(panel, sweep, first, looks)
    if against:
        beside = figure.add_subplot(1, panels, 2)
        _ends(beside, sweep, first, against, looks)
    for each in figure.axes:
        each.grid(alpha=0.25)
        each.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)


def _curves(axes: Axes, sweep: Sweep, first: str, looks: Mapping[str, dict[str, Any]]) -> None:
    metric = sweep.loss
    finished = [point for point in sweep.points if not point.diverged]
    axis, label = x_axis_of(sweep)
    axes.set_xlabel(label)
    axes.set_ylabel((metric or "loss").replace("_", " "))
    lines = [line_of(p.records, axis, metric) for p in finished] if metric else []
    from_zero = fit_x(axes, [float(xy[0, -1]) for xy in lines])
    for point, (x, y) in zip(finished, lines, strict=bool(metric)):
        shown = slice(None) if from_zero else x > 0
        look = looks[value_text(point.values[first])]
        axes.plot(x[shown], y[shown], linewidth=1.4, alpha=0.85, **look)
    log_loss(axes)
    _cut(axes, ceiling_of(sweep))
    entries = {}
    for text, look in looks.items():
        mine = [point for point in sweep.points if value_text(point.values[first]) == text]
        said = _diverged(mine)
        entries[f"{text} ({said})" if said else text] = Line2D([], [], **look)
    axes.legend(entries.values(), entries.keys(), frameon=False, title=first, fontsize=9)


def x_axis_of(sweep: Sweep) -> tuple[str, str]:
    """Updates; time where points differ in who waits and how fast workers are, because an update
    then is not the same amount of work."""
    clock = clock_of(point.summary for point in sweep.points)
    swept = {key.partition(".")[0] for key in sweep.keys if len(sweep.values(key)) > 1}
    if swept <= {"rule", "task", "seed"} or clock == MIXED:
        return "update", "updates"
    return "time_s", clock.label


def _ends(
    axes: Axes, sweep: Sweep, first: str, against: str, looks: Mapping[str, dict[str, Any]]
) -> None:
    """Dots are points, triangles those beyond the frame; lines go through means over seeds."""
    assert sweep.loss
    ceiling = ceiling_of(sweep)
    others = [key for key in sweep.keys if key not in (against, "seed")]
    numbers = sweep.values(against)
    families: dict[str, list[Swept]] = {}
    for point in sweep.points:
        name = ", ".join(f"{key}={value_text(point.values[key])}" for key in others)
        families.setdefault(name, []).append(point)
    for number, (name, members) in enumerate(sorted(families.items())):
        grey = {"color": "#777777", "linestyle": STYLES[number % len(STYLES)]}
        look = grey if first == against else looks[value_text(members[0].values[first])]
        means = []
        for value in numbers:
            here = [p for p in members if p.values[against] == value]
            ends = [p.final(sweep.loss) for p in here if not p.diverged]
            if ends:
                means.append((value, float(np.mean(ends))))
            for end in ends:
                colour = looks[value_text(value)]["color"] if first == against else look["color"]
                beyond = end > ceiling
                mark: dict[str, Any] = {"marker": "^" if beyond else "o", "clip_on": not beyond}
                axes.plot([value], [min(end, ceiling)], color=colour, markersize=5, **mark)
        if means:
            axes.plot(*zip(*means, strict=True), linewidth=1.2, zorder=1, label=name, **look)
    axes.set_xlabel(against)
    axes.set_ylabel(f"final {sweep.loss.replace('_', ' ')}")
    log_loss(axes)
    _cut(axes, ceiling)
    places = np.asarray(numbers, dtype=np.float64)
    if places[0] > 0 and places[-1] > 5 * places[0]:
        axes.set_xscale("log")
        places = np.log(places)
    if np.diff(places).min() > 0.08 * (places[-1] - places[0]):  # room for a label at each
        axes.xaxis.set_major_locator(FixedLocator(numbers))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for value in numbers:
        said = _diverged([p for p in sweep.points if p.values[against] == value])
        if not said:
            continue
        axes.axvline(value, color="#bbbbbb", linestyle=":", linewidth=1)
        axes.annotate(
            said,
            (value, 1.0),
            xycoords=("data", "axes fraction"),
            rotation=90,
            ha="right",
            va="top",
            fontsize=9,
            color="#555555",
        )
    if len(families) > 1 and others != [first]:  # else the curves' legend says it
        axes.legend(frameon=False, fontsize=9)


def ceiling_of(sweep: Sweep) -> float:
    """Where figures end: points that run away, though not to infinity, would flatten the rest."""
    finished = [p.records for p in sweep.points if not p.diverged]
    if not sweep.loss or not finished:
        return math.inf
    starts = [next(r[sweep.loss] for r in records if sweep.loss in r) for records in finished]
    ends = [records[-1][sweep.loss] for records in finished]
    return max(10 * max(starts), 10 * min(ends)) if min(starts + ends) > 0 else math.inf


def _cut(axes: Axes, ceiling: float) -> None:
    if axes.get_ylim()[1] > ceiling:
        lowest = min(float(np.min(each.get_ydata())) for each in axes.lines)
        axes.set_ylim(0.7 * lowest, ceiling)
        log_ticks(axes, lowest, ceiling)


def _diverged(points: Sequence[Swept]) -> str:
    """How many of them have; nothing where none has."""
    lost = sum(point.diverged for point in points)
    if not lost:
        return ""
    return "diverged" if lost == len(points) else f"{lost} of {len(points)} diverged"


def _looks(values: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """A colour and a line style per value; many numbers run through a colour scale."""
    scale = matplotlib.colormaps["viridis"]
    many = len(values) > len(COLOURS)
    return {
        value_text(value): {
            "color": scale(n / (len(values) - 1)) if many else COLOURS[n],
            "linestyle": STYLES[n % len(STYLES)],
        }
        for n, value in enumerate(values)
    }
