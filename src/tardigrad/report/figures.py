"""Figures: loss against updates and against time, and how late gradients were.

Colours are Okabe and Ito's, which people with any colour vision can tell apart; line styles say
the same again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from tardigrad.core.arrays import Floats
from tardigrad.report.clocks import clock_of, tick_text
from tardigrad.report.series import Series, metric_of

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
STYLES = ("-", "--", "-.", (0, (1, 1)))
SIZE = (8.4, 4.8)
DPI = 120


def draw(series: Sequence[Series], folder: str | Path, title: str) -> list[Path]:
    """Write the figures that these series can fill; returns their paths."""
    made: dict[str, Figure] = {}
    metric = metric_of(series)
    if metric:
        clock = clock_of(summary for one in series for summary in one.summaries)
        made["loss_by_update"] = loss_figure(series, metric, "update", "updates", title)
        made["loss_by_time"] = loss_figure(series, metric, "time_s", clock.label, title)
    made["delays"] = delays_figure(series, title)
    paths = []
    for name, figure in made.items():
        path = Path(folder) / f"{name}.png"
        figure.savefig(path, dpi=DPI)
        paths.append(path)
    return paths


def loss_figure(series: Sequence[Series], metric: str, axis: str, label: str, title: str) -> Figure:
    figure, axes = _frame(title, label, metric.replace("_", " "))
    curves = [_curve([line_of(run, axis, metric) for run in one.finished]) for one in series]
    from_zero = fit_x(axes, [curve.x[-1] for curve in curves if curve is not None])
    entries: list[tuple[float, Line2D, str]] = []
    for number, (one, curve) in enumerate(zip(series, curves, strict=True)):
        look = _look(number)
        if curve is None:
            entries.append((np.inf, Line2D([], [], **look), f"{one.label} (diverged)"))
            continue
        shown = slice(None) if from_zero else curve.x > 0
        x, y, low, high = (part[shown] for part in curve)
        (line,) = axes.plot(x, y, linewidth=1.8, **look)
        if len(one.finished) > 1:
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        entries.append((float(y[-1]), line, f"{one.label}  {y[-1]:.3g}"))
    log_loss(axes)
    # The legend stands in the order in which the lines end, with their last values.
    entries.sort(key=lambda entry: -entry[0])
    axes.legend(
        [line for _, line, _ in entries],
        [text for _, _, text in entries],
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        title="ends at",
        alignment="left",
    )
    return figure


class _Curve(NamedTuple):
    """The mean over runs, and the range from the lowest to the highest of them."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


def _curve(runs: Sequence[Floats]) -> _Curve | None:
    if not runs:
        return None
    shortest = min(line.shape[1] for line in runs)
    stacked = np.stack([line[:, :shortest] for line in runs])
    x, y = stacked.mean(axis=0)
    return _Curve(x, y, stacked[:, 1].min(axis=0), stacked[:, 1].max(axis=0))


def delays_figure(series: Sequence[Series], title: str) -> Figure:
    """One histogram per kind of schedule: entries that shared one have the same delays."""
    figure, axes = _frame(title, "delay (updates between pull and push)", "share of gradients")
    groups: dict[tuple[int, ...], list[Series]] = {}
    for one in series:
        groups.setdefault(tuple(one.delay_counts), []).append(one)
    for number, (counts, members) in enumerate(groups.items()):
        shares = np.array(counts) / sum(counts)
        edges = np.arange(len(counts) + 1) - 0.5
        names = ", ".join(one.label for one in members)
        label = f"{names if len(members) <= 2 else f'{len(members)} rules, one schedule'}"
        label += f": mean {members[0].mean_delay:.1f}"
        colour = COLOURS[number % len(COLOURS)]
        axes.stairs(shares, edges, color=colour, fill=True, alpha=0.35)
        axes.stairs(shares, edges, color=colour, linewidth=1.5, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.legend(frameon=False)
    return figure


def _frame(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def log_loss(axes: Axes) -> None:
    """A logarithmic axis with plain numbers, where no value forbids it."""
    values = np.concatenate([np.asarray(line.get_ydata()) for line in axes.lines] or [np.ones(1)])
    if not (values > 0).all():
        return
    axes.set_yscale("log")
    log_ticks(axes, values.min(), values.max())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def log_ticks(axes: Axes, low: float, high: float) -> None:
    """Three a decade where these values span few."""
    decades = np.log10(high / low)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 3 else (1.0,)))


def fit_x(axes: Axes, ends: Sequence[float]) -> bool:
    """Start at 0, or go logarithmic where some lines would end in the first quarter of the axis."""
    from_zero = not ends or min(ends) >= max(ends) / 4
    if from_zero:
        axes.set_xlim(0, 1.02 * max(ends, default=1.0))
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    return from_zero


def _look(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STYLES[number % len(STYLES)],
    }


def line_of(run: Sequence[dict[str, float]], axis: str, metric: str) -> Floats:
    """Two rows, x and y, over the evaluations that have the metric."""
    return np.array([(record[axis], record[metric]) for record in run if metric in record]).T
