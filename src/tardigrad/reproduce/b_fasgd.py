"""B-FASGD on MNIST: how much less can cross the wire, and which way (FASGD paper, Figure 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from tardigrad.clusters import Dispatcher
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.engine import Run, simulate
from tardigrad.links import BandwidthAware
from tardigrad.rules import fasgd
from tardigrad.scheduling.traffic import copies_curve
from tardigrad.tasks import Task, mnist_mlp

COLOURS = ("#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00")
C_PULL = (0.02, 0.12, 0.5)
C_PUSH = (0.02, 0.12)
"""0.12 cuts a direction to a tenth, v̄ being about 0.012 after the first updates."""

EVALUATIONS = 40


@dataclass(frozen=True)
class _Line:
    label: str
    link: BandwidthAware
    run: Run

    @property
    def gradients(self) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Gradients that had been computed by each evaluation."""
        size = float(self.run.params.numel() * self.run.params.element_size())
        return np.array(self.run.history.column("push_bytes_potential")) / size

    @property
    def cost(self) -> list[float]:
        return self.run.history.column("validation_loss")

    @property
    def final(self) -> float:
        """The median of the last quarter of the evaluations: single ones are noisy."""
        return float(np.median(self.cost[-EVALUATIONS // 4 :]))


def b_fasgd(
    folder: Path,
    updates: int = 10_000,
    workers: int = 16,
    task: Task | None = None,
    lr: float = 0.005,
    seed: int = 0,
) -> ResultTable:
    """The cost and the copies both ways, for several c_pull and c_push.

    A push that is averaged into a later one makes no update of its own, so those runs get fewer
    updates: as many as make them compute about as many gradients as the others.
    """
    task = task or mnist_mlp(batch_size=8, seed=seed)

    def line(label: str, link: BandwidthAware, updates: int) -> _Line:
        run = simulate(
            task,
            fasgd(lr),
            cluster=Dispatcher(workers),
            updates=updates,
            seed=seed,
            link=link,
            evaluation=max(1, updates // EVALUATIONS),
        )
        return _Line(label, link, run)

    plain = line("FASGD", BandwidthAware(), updates)
    heard = float(np.nanmedian(plain.run.schedule.wire_deviation))
    pulls = [line(f"pull {c:g}", BandwidthAware(c_pull=c), updates) for c in C_PULL]
    pushes = [line(f"push {c:g} reapply", BandwidthAware(c_push=c), updates) for c in C_PUSH]
    for c in C_PUSH:
        link = BandwidthAware(c_push=c, on_drop="average")
        fewer = max(1, round(updates / (1 + c / (heard + link.eps))))
        pushes.append(line(f"push {c:g} average", link, fewer))
    figure = folder / "b_fasgd.png"
    title = f"B-FASGD, {workers} workers, {updates:,} gradients"
    _draw(figure, title, [plain, *pulls], [plain, *pushes])
    lines = [plain, *pulls, *pushes]
    return ResultTable(
        title=title,
        columns=(
            "link",
            "updates",
            "MB up",
            "MB down",
            "cost",
            "change",
            "best",
        ),
        rows=tuple(_row(one, plain) for one in lines),
        notes=(
            "pull, push: which way c held back; up, down: what crossed to the servers and back",
            "cost: validation cost, the median of the last quarter of the evaluations (single ones "
            "vary by a factor of two); best: the lowest of all",
            "every line is of about as many gradients computed; averaged ones make fewer updates",
            "published: pulls cut to a tenth without loss, pushes hardly at all; a tenth of the "
            "pulls with all pushes kept is a total of 1/1.8, not the paper's 1/5",
            f"v̄, which gates transmission, falls from 1 to its median of {heard:.3g} within the "
            "first updates (FASGD's ε keeps it from falling further), so copies bend only there",
        ),
        figures=(figure,),
    )


def _row(one: _Line, plain: _Line) -> tuple[Cell, ...]:
    traffic = one.run.traffic
    assert traffic is not None
    return (
        one.label,
        one.run.schedule.updates,
        traffic.push.sent_bytes / 1e6,
        traffic.pull.sent_bytes / 1e6,
        round(one.final, 4),
        f"{one.final / plain.final - 1:+.1%}",
        round(min(one.cost), 4),
    )


def _draw(path: Path, title: str, pulls: Sequence[_Line], pushes: Sequence[_Line]) -> None:
    """Above, what happens when pulls are held back; below, pushes. Three panels each."""
    figure = Figure(figsize=(14, 8), layout="constrained")
    rows = zip(figure.subplots(2, 3), ("pulls", "pushes"), (pulls, pushes), strict=True)
    for row, what, lines in rows:
        for axes in row:
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        _costs(row[0], lines)
        _copies(row[1], lines, pull=False)
        _copies(row[2], lines, pull=True)
        row[0].set_title(f"{what} held back", loc="left", fontsize=11)
        row[0].legend(frameon=True, framealpha=0.85, edgecolor="none", loc="upper right")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.savefig(path, dpi=120)


def _costs(axes: Axes, lines: Sequence[_Line]) -> None:
    for one, colour in zip(lines, COLOURS, strict=False):
        x, y = one.gradients, np.array(one.cost)
        label = f"{one.label}  ({one.final:.3f})"
        axes.plot(x[1:], y[1:], _style(one), color=colour, linewidth=1.4, label=label)
    axes.set_yscale("log")
    axes.set_ylim(top=4)  # a spike would squeeze all the rest
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axes.set_xlabel("gradients computed")
    axes.set_ylabel("validation cost")


def _copies(axes: Axes, lines: Sequence[_Line], pull: bool) -> None:
    for one, colour in zip(lines, COLOURS, strict=False):
        potential, sent = copies_curve(one.run.schedule, pull)
        axes.plot(potential, sent, _style(one), color=colour, linewidth=1.4)
    what = "pulls" if pull else "pushes"
    axes.set_xlabel(f"potential {what}")
    axes.set_ylabel(f"{what} that crossed")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _style(one: _Line) -> str:
    return "--" if one.link.on_drop == "average" else "-"
