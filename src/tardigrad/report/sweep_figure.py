"""A sweep as one figure: every point's curve over updates and over time, and where each ends."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tardigrad.report.clocks import MIXED
from tardigrad.report.figures import (
    COLOURS,
    LEGEND,
    STYLES,
    band_words,
    caption_below,
    ceiling_of,
    cut_above,
    draw_curve,
    fit_x,
    line_of,
    log_loss,
    mean_curve,
    plain_frame,
)
from tardigrad.report.results import is_numeric, value_text
from tardigrad.report.series import Series, metric_of
from tardigrad.report.tables import clock

PANEL = (4.8, 4.6)
PointValues = Mapping[str, Mapping[str, Any]]
GREY = "#777777"


def sweep_figure(
    title: str, series: Sequence[Series], points: PointValues, values: Mapping[str, Sequence[Any]]
) -> Figure:
    """Every point's curve, coloured by the first axis: over updates and over time; beside them,
    where there is an axis of numbers, the loss at the end against it.

    values: what each key takes.
    """
    loss, time = metric_of(series), clock(series)
    varied = [key for key in values if len(values[key]) > 1]
    first = (varied or list(values))[0]
    numeric = [key for key in varied if all(map(is_numeric, values[key]))]
    against = numeric[0] if numeric and loss else None
    axes_of = [("update", "updates")] + ([("time_s", time.label)] if time != MIXED else [])
    panels = len(axes_of) + bool(against)
    figure = Figure(figsize=(PANEL[0] * panels + 1.2, PANEL[1]), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    looks = SweepLooks(points, first, values[first])
    for number, (axis, label) in enumerate(axes_of, start=1):
        panel = plain_frame(figure.add_subplot(1, panels, number), label, loss or "loss")
        if loss:
            curves_panel(panel, series, loss, axis, looks)
    if against and loss:
        _ends(figure.add_subplot(1, panels, panels), series, points, loss, against, looks)
    shown = looks.legend()
    for text in [*shown]:
        mine = [one for one in series if value_text(points[one.label][first]) == text]
        if said := _diverged(mine):
            shown = {f"{t} ({said})" if t == text else t: line for t, line in shown.items()}
    place = {**LEGEND, "title": first, "loc": "outside right upper", "fontsize": 9}
    figure.legend(list(shown.values()), list(shown), **place)
    dots = "right: a dot is a run, lines are means" if against else ""
    caption_below(figure, "; ".join(filter(None, [band_words(series), dots])))
    return figure


def curves_panel(
    axes: Axes, series: Sequence[Series], metric: str, axis: str, looks: "SweepLooks"
) -> None:
    """The mean over seeds of every point, and one standard deviation around it."""
    found = {o.label: mean_curve([line_of(r, axis, metric) for r in o.finished]) for o in series}
    curves = {label: curve for label, curve in found.items() if curve is not None}
    from_zero = fit_x(axes, [float(curve.x[-1]) for curve in curves.values()])
    ceiling = ceiling_of(series, metric)
    for label, curve in curves.items():
        draw_curve(axes, curve, from_zero, looks.of(label), ceiling)
    log_loss(axes)
    cut_above(axes, ceiling)


def _ends(
    axes: Axes,
    series: Sequence[Series],
    points: PointValues,
    loss: str,
    against: str,
    looks: "SweepLooks",
) -> None:
    """Dots are runs, triangles those beyond the frame; lines go through means over seeds."""
    plain_frame(axes, against, f"final {loss}")
    ceiling = ceiling_of(series, loss)
    numbers = sorted({point[against] for point in points.values()})
    families: dict[str, list[Series]] = {}
    for one in series:
        others = {key: value for key, value in points[one.label].items() if key != against}
        families.setdefault(says(others), []).append(one)
    for members in families.values():
        means = []
        for one in sorted(members, key=lambda one: float(points[one.label][against])):
            value, ends = points[one.label][against], one.final(loss)
            mean = float(np.mean(ends or math.nan))
            if math.isfinite(mean):
                means.append((value, mean))
            for end in ends:
                beyond = not end <= ceiling
                mark: dict[str, Any] = {"marker": "^" if beyond else "o", "clip_on": not beyond}
                colour = looks.of(one.label)["color"]
                axes.plot([value], [min(end, ceiling)], color=colour, markersize=5, **mark)
        if means:
            look = dict(looks.of(members[0].label))
            if looks.first == against:  # it goes through all of its colours
                look["color"] = GREY
            axes.plot(*zip(*means, strict=True), linewidth=1.2, zorder=1, **look)
    log_loss(axes)
    cut_above(axes, ceiling)
    _number_ticks(axes, numbers)
    for value in numbers:
        said = _diverged([one for one in series if points[one.label][against] == value])
        if said:
            axes.axvline(value, color="#bbbbbb", linestyle=":", linewidth=1)
            # Inside the frame, whichever end of it the value is near.
            right = value != numbers[0]
            axes.annotate(
                said,
                (value, 1.0),
                xycoords=("data", "axes fraction"),
                rotation=90,
                ha="right" if right else "left",
                va="top",
                fontsize=9,
                color="#555555",
            )


def _number_ticks(axes: Axes, numbers: Sequence[float]) -> None:
    """At the values themselves where there is room; logarithmic where they lie far apart."""
    places = np.asarray(numbers, dtype=np.float64)
    if places[0] > 0 and places[-1] > 5 * places[0]:
        axes.set_xscale("log")
        places = np.log(places)
    if np.diff(places).min() > 0.08 * (places[-1] - places[0]):
        axes.xaxis.set_major_locator(FixedLocator(numbers))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _diverged(series: Sequence[Series]) -> str:
    """How many of their runs have; nothing where none has."""
    lost, runs = sum(one.diverged for one in series), sum(len(one.summaries) for one in series)
    if not lost:
        return ""
    return "diverged" if lost == runs else f"{lost} of {runs} diverged"


class SweepLooks:
    """A colour per value of the first axis, many numbers along a scale; a line style per
    combination of the others, or again per value where there are none."""

    def __init__(self, points: PointValues, first: str, values: Sequence[Any]) -> None:
        self.first = first
        scale, many = matplotlib.colormaps["viridis"], len(values) > len(COLOURS)
        self._values = [value_text(value) for value in values]
        self._colours: list[Any] = [
            scale(n / (len(values) - 1)) if many else COLOURS[n] for n in range(len(values))
        ]
        self._own = {label: value_text(point[first]) for label, point in points.items()}
        self._others = {
            label: says({key: value for key, value in point.items() if key != first})
            for label, point in points.items()
        }
        self._families = sorted(set(self._others.values()))

    def of(self, label: str) -> dict[str, Any]:
        number = self._values.index(self._own[label])
        return {"color": self._colours[number], "linestyle": self._style(number, label)}

    def _style(self, number: int, label: str) -> Any:
        if len(self._families) > 1:
            number = self._families.index(self._others[label])
        return STYLES[number % len(STYLES)]

    def legend(self) -> dict[str, Line2D]:
        """A line per value, then one per combination of the others."""
        several = len(self._families) > 1
        out = {}
        for number, text in enumerate(self._values):
            style: Any = "-" if several else STYLES[number % len(STYLES)]
            out[text] = Line2D([], [], color=self._colours[number], linestyle=style)
        for number, name in enumerate(self._families if several else ()):
            out[name] = Line2D([], [], color=GREY, linestyle=STYLES[number % len(STYLES)])
        return out


def says(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value_text(value)}" for key, value in values.items())
