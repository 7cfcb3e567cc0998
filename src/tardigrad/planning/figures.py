"""The planner's figures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter

from tardigrad.core.arrays import Floats
from tardigrad.planning.advice import Plan
from tardigrad.planning.speedup import Speedup
from tardigrad.planning.splits import BackupSplit, best

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

Points = tuple[Sequence[float], Sequence[float]]


def draw_plan(plan: Plan, path: Path, title: str) -> None:
    """Four panels: when the k-th gradient comes, twice; the splits; what asynchrony brings."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    axes = figure.subplots(2, 2)
    draw_collect_cdf(axes[0][0], plan.times_s)
    draw_collect_means(axes[0][1], plan.times_s)
    draw_splits(axes[1][0], {"order statistics": plan.estimated}, plan.simulated)
    draw_speedups(axes[1][1], {"": plan.speedups})
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.savefig(path, dpi=120)


def draw_panels(path: Path, title: str, *panels: Callable[[Axes], None]) -> None:
    """Panels side by side in one file."""
    figure = Figure(figsize=(5.6 * len(panels), 4.4), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        panel(axes)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.savefig(path, dpi=120)


def draw_collect_cdf(axes: Axes, times_s: Floats, ks: Sequence[int] | None = None) -> None:
    """Distribution of the time to the k-th gradient."""
    most = int(np.isfinite(times_s).sum(axis=1).max())
    last = [most - 3, most - 2, most - 1, most]
    ks = ks or sorted({k for k in (1, most // 2, most * 9 // 10, *last) if k >= 1})
    shown = np.concatenate([times_s[:, k - 1] for k in ks])
    right = float(np.nanquantile(shown, 0.97)) * 1.15
    for k, colour in zip(ks, COLOURS, strict=False):
        took = np.sort(times_s[:, k - 1][np.isfinite(times_s[:, k - 1])])
        share = np.arange(1, len(took) + 1) / len(times_s)
        axes.step(took, share, where="post", color=colour, label=f"k = {k}")
    axes.set_xlim(0 if right < 1e-9 else float(np.nanmin(shown)) * 0.9, right)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    finish_axes(axes, "time to the k-th gradient (s)", "share of versions")
    axes.legend(frameon=False, loc="lower right")


def draw_collect_means(axes: Axes, times_s: Floats) -> None:
    """Mean and median time to the k-th gradient."""
    times_s = times_s[:, np.isfinite(times_s).any(axis=0)]
    ks = np.arange(1, times_s.shape[1] + 1)
    axes.plot(ks, np.nanmean(times_s, axis=0), color=COLOURS[0], label="mean")
    axes.plot(ks, np.nanmedian(times_s, axis=0), color=COLOURS[1], ls="--", label="median")
    axes.set_ylim(bottom=0)
    finish_axes(axes, "k", "time to the k-th gradient (s)")
    axes.legend(frameon=False, loc="upper left")


def draw_splits(
    axes: Axes, estimated: dict[str, Sequence[BackupSplit]], simulated: Sequence[BackupSplit] = ()
) -> None:
    """Total time against the number of workers; the other machines are backups."""
    for (label, splits), colour in zip(estimated.items(), COLOURS, strict=False):
        least = best(splits)
        relative = [s.total_s / least.total_s for s in splits]
        name = f"{label}: best {least.workers} + {least.backups}"
        axes.plot([s.workers for s in splits], relative, color=colour, label=name)
        axes.plot(least.workers, 1.0, "o", color=colour)
    if simulated:
        first = best(next(iter(estimated.values())))
        chosen = best(simulated)
        axes.plot(
            [s.workers for s in simulated],
            [s.total_s / first.total_s for s in simulated],
            "s",
            color=COLOURS[-1],
            markersize=4,
            label=f"policy simulated: best {chosen.workers} + {chosen.backups}",
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    finish_axes(axes, "workers waited for (the others are backups)", "total time ÷ the least")
    axes.legend(frameon=False, loc="best")


def draw_speedups(axes: Axes, series: dict[str, Sequence[Speedup]]) -> None:
    """Gradients per second, asynchronous over synchronous, against the number of workers."""
    for (label, points), colour in zip(series.items(), COLOURS, strict=False):
        axes.errorbar(
            [p.workers for p in points],
            [p.ratio for p in points],
            [p.deviation for p in points],
            color=colour,
            marker="o",
            markersize=4,
            capsize=2,
            label=label or None,
        )
    axes.set_xscale("log", base=2)  # a tick at every doubling, so that few workers have some too
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    finish_axes(axes, "workers", "gradients per second, async ÷ sync")
    if any(series):
        axes.legend(frameon=False, loc="upper left")


def plot_lines(
    axes: Axes,
    x: str,
    y: str,
    lines: Mapping[str, Points],
    points: Mapping[str, Points] | None = None,
    marker: str = "o",
) -> None:
    """Named lines, and single points beside them."""
    for (label, (xs, ys)), colour in zip(lines.items(), COLOURS, strict=False):
        axes.plot(list(xs), list(ys), color=colour, marker=marker, markersize=3, label=label)
    for label, (xs, ys) in (points or {}).items():
        axes.plot(list(xs), list(ys), "D", color=COLOURS[-1], markersize=6, label=label)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    finish_axes(axes, x, y)
    axes.legend(frameon=False)


def finish_axes(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
