"""What figures of several studies are made of."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from tardigrad.report.figures import save_figure
from tardigrad.reproduce.kept_cells import FoundCells, KeptCell

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def panels(
    count: int, title: str, across: int | None = None, height: float = 3.9
) -> tuple[Figure, list[Axes]]:
    """So many panels, `across` in a row, each so many inches high."""
    across = across or count
    down = -(-count // across)
    figure = Figure(figsize=(5.2 * across, height * down), layout="constrained")
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for axes in grid:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[count:]:
        axes.set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure, grid[:count]


def written(figure: Figure, path: Path) -> Path:
    save_figure(figure, path)
    return path


def curve(cells: Sequence[KeptCell], x: str, y: str) -> tuple[list[float], list[float]]:
    """The mean over seeds of evaluations that all of them have; nothing where none is there."""
    runs = [cell.records for cell in cells if cell.records]
    points = list(zip(*runs, strict=False))
    known = [at for at in points if all(x in one and y in one for one in at)]
    return (
        [at[0][x] for at in known],
        [statistics.fmean(one[y] for one in at) for at in known],
    )


def along(
    axes: Axes,
    cells: Sequence[KeptCell],
    x: str | Callable[[Mapping[str, float]], float],
    y: str,
    colour: str,
    label: str,
    scale: float = 1.0,
    style: str = "-",
) -> None:
    """The mean over seeds against an x that differs from seed to seed, in a band of all seeds.

    x: a figure of an evaluation, or a function of it. Between two evaluations a straight line; as
    far as every seed goes.
    """
    of = itemgetter(x) if isinstance(x, str) else x
    evaluated = [[one for one in cell.records if y in one] for cell in cells]
    runs = [np.array([(of(one), scale * one[y]) for one in run]).T for run in evaluated if run]
    if not runs:
        return
    at = np.linspace(max(run[0, 0] for run in runs), min(run[0, -1] for run in runs), 200)
    lines = np.array([np.interp(at, *run) for run in runs])
    axes.plot(at, lines.mean(0), style, color=colour, label=label)
    axes.fill_between(at, lines.min(0), lines.max(0), color=colour, alpha=0.15, linewidth=0)


def legend(axes: Axes, below: bool | None = None) -> None:
    """Where there is something to name; else the panel says that it is empty.

    below: under the panel, where it covers no curve; left out: if it names five or more.
    """
    named = len(axes.get_legend_handles_labels()[0])
    if named and (named > 4 if below is None else below):
        axes.legend(
            frameon=False,
            fontsize=9,
            ncols=2,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            borderaxespad=4.4,  # letters' heights: the axis, its numbers and its label
        )
    elif named:
        axes.legend(frameon=False, fontsize=9)
    else:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "empty", transform=axes.transAxes, ha="center", color="grey")


def log_scale(axes: Axes) -> None:
    """Plain numbers at 1, 2 and 5."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def accuracy_by_workers(
    path: Path,
    title: str,
    found: FoundCells,
    rules: Sequence[str],
    published: Mapping[int, Mapping[str, tuple[float, float]]],
    baseline: float,
) -> None:
    """The final test error of each rule beside the published one, and how it came down."""
    numbers = [n for n in sorted(published) if found.matching(f"N={n}/*")] or [32]
    shown = 32 if 32 in numbers else numbers[0]
    form = " (quick form, a stand-in)" if found.quick else ""
    figure, (ends, curves) = panels(2, f"{title}{form}: test error", height=4.4)
    across = {name: at for at, name in enumerate(rules)}
    for number, colour in zip(numbers, COLOURS, strict=False):
        shift = 0.16 * (numbers.index(number) - (len(numbers) - 1) / 2)
        for name, at in across.items():
            stem = f"N={number}/{name}"
            errors = [100 - 100 * v for v in found.values(stem, "test_accuracy", 0.1)]
            ends.plot([at + shift] * len(errors), errors, "o", color=colour, markersize=6)
            if not found.quick:
                mean, deviation = published[number][name]
                ends.errorbar(
                    at + shift, 100 - mean, deviation, fmt="s", color=colour, markersize=6,
                    markerfacecolor="none", capsize=3, linewidth=1,
                )  # fmt: skip
        ends.plot([], [], "o", color=colour, label=f"N = {number}")
    ours = found.values("N=1/NAG", "test_accuracy")
    if ours:
        ends.axhline(100 - 100 * ours[0], color="black", linewidth=1, ls="--", label="one worker")
    if not found.quick:
        ends.plot([], [], "s", color="grey", markerfacecolor="none", label="published")
        ends.axhline(
            100 - baseline, color="grey", linewidth=1, ls=":", label="one worker, published"
        )
    log_scale(ends)
    ends.set_xticks(list(across.values()), list(across), rotation=30, ha="right")
    ends.set_ylabel("final test error (%)")
    legend(ends)
    for name, colour in zip(rules, COLOURS, strict=False):
        x, y = curve(found.matching(f"N={shown}/{name}/seed=*"), "epoch", "test_accuracy")
        if x:
            # Dashed, the last one hides no other that stays at chance too.
            style = "--" if name == rules[-1] else "-"
            curves.plot(x, [100 - 100 * value for value in y], style, color=colour, label=name)
    curves.set_title(f"N = {shown}", fontsize=10)
    log_scale(curves)
    curves.set_xlabel("epochs")
    curves.set_ylabel("test error (%)")
    legend(curves)
    written(figure, path)


def error_curves(
    found: FoundCells, folder: Path, lines: Mapping[str, str], metric: str, over: Sequence[str]
) -> list[Path]:
    """Test error along the runs: patterns of cells by label, a panel for each x in `over`."""
    form = " (quick form, a stand-in)" if found.quick else ""
    figure, grid = panels(len(over), f"{found.study}{form}: test error")
    for axes, x in zip(grid, over, strict=True):
        for (label, cells), colour in zip(lines.items(), COLOURS, strict=False):
            at, accuracy = curve(found.matching(cells), x, metric)
            if at:
                errors = [100 - 100 * value for value in accuracy]
                axes.plot(at, errors, color=colour, label=label)
        axes.set_xlabel({"epoch": "epochs", "time_s": "virtual time (s)"}[x])
        axes.set_ylabel("test error (%)")
        log_scale(axes)
        legend(axes)
    return [written(figure, folder / f"{found.study}.png")]
