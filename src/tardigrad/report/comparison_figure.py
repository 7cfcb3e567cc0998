"""A comparison as one figure: curves over updates and over time, and differences at the end."""

import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tardigrad.report.clocks import time_text
from tardigrad.report.differences import PairedDifference, signed
from tardigrad.report.figures import LEGEND, band_words, caption_below, loss_panel, plain_frame
from tardigrad.report.figures import look_of as looks
from tardigrad.report.intervals import LEVEL
from tardigrad.report.series import Series, metric_of
from tardigrad.report.tables import clock

PANEL = (4.2, 3.8)
LABEL_INCHES = 0.075
"""A letter of a label."""


def comparison_figure(
    title: str,
    series: Sequence[Series],
    differences: Sequence[PairedDifference],
    met_the_same: bool,
) -> Figure:
    """Loss against updates, and against time where it is not the same for all; where several are
    compared, also how far each ends from the baseline, seed by seed."""
    metric, time = metric_of(series), clock(series)
    axes_of = [("update", "updates"), ("time_s", time.label)]
    if met_the_same:
        took = f"{time_text(series[0].mean('time_s'))} {time.unit} of {time.time}"
        axes_of = [("update", f"updates (all of them: {took})")]
    panels = len(axes_of) + bool(differences)
    longest = LABEL_INCHES * max(len(one.label) for one in series)
    width = panels * PANEL[0] + longest * (1 + bool(differences)) + 1.0
    figure = Figure(figsize=(width, PANEL[1]), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    for number, (axis, label) in enumerate(axes_of, start=1):
        axes = plain_frame(figure.add_subplot(1, panels, number), label, metric or "loss")
        if metric:
            lines, texts = loss_panel(axes, series, metric, axis).shown()
            if number == 1:
                place: dict[str, Any] = {**LEGEND, "loc": "outside right upper", "fontsize": 9}
                figure.legend(lines, texts, **place)
    if differences:
        differences_panel(figure.add_subplot(1, panels, panels), series, differences)
    if caption := "; ".join(filter(None, [band_words(series), _words(differences)])):
        caption_below(figure, caption)
    return figure


def differences_panel(
    axes: Axes, series: Sequence[Series], differences: Sequence[PairedDifference]
) -> None:
    """A line per label: every seed's difference, their mean and its interval; 0 is the baseline."""
    one = differences[0]
    metric = one.metric.replace("_", " ")
    plain_frame(axes, f"final {metric}: difference from {one.baseline}", "")
    axes.axvline(0.0, color="#777777", linewidth=1.0, linestyle=":")
    numbers = {each.label: number for number, each in enumerate(series)}
    within = _within(differences)
    for row, each in enumerate(differences):
        colour = looks(numbers[each.label])["color"]
        if each.mean is None or each not in within:
            said = "no seed that both finished"
            if each.mean is not None:
                said = f"beyond the frame: {signed(each.mean, each.metric)}"
            axes.annotate(
                said,
                (0.98, row),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=9,
                color="#555555",
            )
            continue
        axes.plot(each.values, [row] * len(each.values), "|", color=colour, markersize=8, alpha=0.6)
        if each.low is not None and each.high is not None:
            axes.plot([each.low, each.high], [row, row], color=colour, linewidth=2.2)
        axes.plot([each.mean], [row], "o", color=colour, markersize=6)
    axes.set_yticks(range(len(differences)), [each.label for each in differences], fontsize=9)
    axes.set_ylim(len(differences) - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))


def _within(differences: Sequence[PairedDifference]) -> list[PairedDifference]:
    """Those that do not flatten the others: not fifty times as far from 0 as half of them are."""
    sizes = {each.label: max(map(abs, each.values)) for each in differences if each.values}
    usual = statistics.median_low([size for size in sizes.values() if size > 0] or [0.0])
    return [each for each in differences if each.values and sizes[each.label] <= 50 * usual]


def _words(differences: Sequence[PairedDifference]) -> str:
    """What dots and bars are."""
    if not differences:
        return ""
    pairs = max(len(one.values) for one in differences)
    if pairs < 2:
        return "one seed: difference without an interval"
    return (
        f"dot: mean of {pairs} paired differences (ticks), bar: its {LEVEL:.0%} interval "
        "(Student's t)"
    )
