"""Figures: loss against updates and against time, and how late gradients were.

Colours are Okabe and Ito's, which people with any colour vision can tell apart; line styles say
the same again.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from tardigrad.core.arrays import Floats
from tardigrad.report.clocks import clock_of, tick_text
from tardigrad.report.series import Series, metric_of
from tardigrad.report.tables import note_of

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
STYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 1)))
SIZE = (8.4, 4.8)
BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
LEGEND: dict[str, Any] = {"frameon": False, "title": "ends at", "alignment": "left"}
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
    paths = [Path(folder) / f"{name}.png" for name in made]
    for path, figure in zip(paths, made.values(), strict=True):
        save_figure(figure, path)
    return paths


FORMATS = (".png", ".pdf", ".svg")


def save_figure(figure: Figure, path: str | Path) -> None:
    """As the name's ending says. The same figure makes the same file; text in a PDF stays text."""
    path = Path(path)
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    settings: Any = {"pdf.fonttype": 42, "svg.hashsalt": "tardigrad"}
    with matplotlib.rc_context(settings):
        figure.savefig(path, dpi=DPI, metadata=dates.get(path.suffix))


def loss_figure(series: Sequence[Series], metric: str, axis: str, label: str, title: str) -> Figure:
    figure, axes = _frame(title, label, metric)
    legend = loss_panel(axes, series, metric, axis)
    lines, texts = legend.shown()
    axes.legend(lines, texts, **BESIDE, **LEGEND)
    if caption := band_words(series):
        caption_below(figure, caption)
    return figure


class Legend(NamedTuple):
    """Lines by where they end, the highest first, with their last values."""

    entries: list[tuple[float, Line2D, str]]

    def shown(self) -> tuple[list[Line2D], list[str]]:
        entries = sorted(self.entries, key=lambda entry: -entry[0])
        return [line for _, line, _ in entries], [text for _, _, text in entries]


def loss_panel(axes: Axes, series: Sequence[Series], metric: str, axis: str) -> Legend:
    """The mean over seeds of every label, and one standard deviation around it."""
    curves = [mean_curve([line_of(run, axis, metric) for run in one.finished]) for one in series]
    from_zero = fit_x(axes, [curve.x[-1] for curve in curves if curve is not None])
    ceiling, legend = ceiling_of(series, metric), Legend([])
    for number, (one, curve) in enumerate(zip(series, curves, strict=True)):
        look = look_of(number)
        if curve is None:
            lost = f"{one.label} (diverged)"
            legend.entries.append((np.inf, Line2D([], [], **look), lost))
            continue
        line = draw_curve(axes, curve, from_zero, look, ceiling)
        last = curve.y[-1]
        text = f"{one.label}{note_of(one)}  {last:.3g}"
        legend.entries.append((float(last), line, text))
    log_loss(axes)
    cut_above(axes, ceiling)
    return legend


def draw_curve(
    axes: Axes, curve: "Curve", from_zero: bool, look: dict[str, Any], ceiling: float
) -> Line2D:
    """A line, and its band where there are several runs; none where the line is out of sight."""
    shown = slice(None) if from_zero else curve.x > 0
    x, y = curve.x[shown], curve.y[shown]
    (line,) = axes.plot(x, y, linewidth=1.8, **look)
    if curve.runs > 1:
        low, high = y - curve.deviation[shown], y + curve.deviation[shown]
        seen = {"where": y <= ceiling, "color": look["color"]}
        axes.fill_between(x, low, high, alpha=0.15, linewidth=0, **seen)
    return line


def band_words(series: Sequence[Series]) -> str:
    """What lines and bands are; nothing where they are single runs."""
    most = max((len(one.finished) for one in series), default=0)
    if most < 2:
        return ""
    ends = [[run[-1]["update"] for run in one.finished] for one in series]
    cut = any(len(set(each)) > 1 for each in ends)
    return (
        f"line: mean over {most} seeds{', as far as the shortest run' if cut else ''}; "
        "band: ± 1 standard deviation"
    )


def caption_below(figure: Figure, text: str) -> None:
    figure.supxlabel(text, x=0.01, ha="left", fontsize=9, color="#555555")


class Curve(NamedTuple):
    """The mean over runs, evaluation by evaluation, and their standard deviation."""

    x: Floats
    y: Floats
    deviation: Floats
    runs: int


def mean_curve(runs: Sequence[Floats]) -> Curve | None:
    if not runs:
        return None
    shortest = min(line.shape[1] for line in runs)
    stacked = np.stack([line[:, :shortest] for line in runs])
    x, y = stacked.mean(axis=0)
    many = len(runs) > 1
    deviation = stacked[:, 1].std(axis=0, ddof=1) if many else np.zeros_like(y)
    return Curve(x, y, deviation, len(runs))


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
    axes = plain_frame(figure.add_subplot(), x, y)
    axes.set_title(title, loc="left", fontsize=11)
    return figure, axes


def plain_frame(axes: Axes, x: str, y: str) -> Axes:
    """Labels, a faint grid, and no lines above and at the right."""
    axes.set_xlabel(x)
    axes.set_ylabel(y.replace("_", " "))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def log_loss(axes: Axes) -> None:
    """A logarithmic axis with plain numbers, where no value forbids it. A band that
    reaches far below all lines, or below 0, runs out of the frame."""
    values = np.concatenate([np.asarray(line.get_ydata()) for line in axes.lines] or [np.ones(1)])
    values = values[np.isfinite(values)]
    if not len(values) or not (values > 0).all():
        return
    axes.set_yscale("log")
    if axes.collections:
        edges = np.concatenate([values, *(path.vertices[:, 1] for path in _bands(axes))])
        edges = edges[np.isfinite(edges)]
        low = max(edges[edges > 0].min(), values.min() / 3)
        room = (edges.max() / low) ** 0.05
        axes.set_ylim(low / room, edges.max() * room)
    log_ticks(axes, values.min(), values.max())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def _bands(axes: Axes) -> list[Any]:
    return [path for each in axes.collections for path in each.get_paths()]


def ceiling_of(series: Sequence[Series], loss: str) -> float:
    """Where figures end: points that run away, though not to infinity, would flatten the rest."""
    finished = [run for one in series for run in one.finished]
    if not finished:
        return math.inf
    starts = [next(r[loss] for r in records if loss in r) for records in finished]
    ends = [records[-1][loss] for records in finished]
    starts, ends = ([value for value in each if math.isfinite(value)] for each in (starts, ends))
    if not starts or not ends:
        return math.inf
    return max(10 * max(starts), 10 * min(ends)) if min(starts + ends) > 0 else math.inf


def cut_above(axes: Axes, ceiling: float) -> None:
    """End the axis there, where lines go beyond it."""
    if axes.get_ylim()[1] > ceiling:
        lowest = min(float(np.nanmin(each.get_ydata())) for each in axes.lines)
        axes.set_ylim(0.7 * lowest, ceiling)
        log_ticks(axes, lowest, ceiling)


def log_ticks(axes: Axes, low: float, high: float) -> None:
    """Three a decade where these values span few."""
    decades = np.log10(high / low)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 3 else (1.0,)))


def fit_x(axes: Axes, ends: Sequence[float]) -> bool:
    """Start at 0, or go logarithmic where some lines would end in the first quarter of the axis."""
    from_zero = not ends or min(ends) >= max(ends) / 4
    if from_zero:
        axes.set_xlim(0, 1.02 * (max(ends, default=0.0) or 1.0))
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    return from_zero


def look_of(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": STYLES[number % len(STYLES)],
    }


def line_of(run: Sequence[dict[str, float]], axis: str, metric: str) -> Floats:
    """Two rows, x and y, over the evaluations that have the metric; NaN, which leaves a gap, where
    it is infinite too."""
    found = np.array([(record[axis], record[metric]) for record in run if metric in record]).T
    return np.where(np.isfinite(found), found, np.nan)
