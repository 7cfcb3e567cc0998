"""FASGD against SASGD on MNIST: Figures 1 and 2 of the FASGD paper (Odena 2016).

The paper's setting: an MLP 784-200-10, ReLU, negative log likelihood; each rule at its own rate,
0.005 for FASGD and 0.04 for SASGD; 100,000 iterations of one gradient each; clients drawn by FRED's
dispatcher. Taken to be so, where the paper is silent: the dispatcher is uniform, and pixels are
from 0 to 1. FASGD's own constants are those of `Fasgd`, which the paper does not give.
"""

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tardigrad.clusters import Dispatcher
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.engine import Diverged, History
from tardigrad.engine.drive import drive
from tardigrad.engine.execute import prepare
from tardigrad.engine.memory import check_budget
from tardigrad.rules import Rule, fasgd, staleness_aware
from tardigrad.scheduling import Schedule, schedule
from tardigrad.tasks import Task, mnist_mlp

RULES = {"FASGD": (fasgd(lr=0.005), "#0072B2"), "SASGD": (staleness_aware(lr=0.04), "#D55E00")}
FIGURE_1 = ((1, 128), (4, 32), (8, 16), (32, 4))
FIGURE_2 = ((128, 250), (128, 500), (128, 1000), (128, 10_000))
EVALUATIONS = 100


@dataclass(frozen=True)
class _Line:
    """One rule in one panel; a diverged run has no final cost."""

    update: list[float]
    cost: list[float]
    prepared_s: float
    """Compiling and capturing."""
    ran_s: float

    @property
    def final(self) -> float | None:
        """The median of the last tenth of the evaluations: single ones are noisy."""
        return float(np.median(self.cost[-EVALUATIONS // 10 :])) if self.cost else None

    def reaches(self, cost: float) -> float | None:
        """The first update by which the cost was that low."""
        low = [u for u, c in zip(self.update, self.cost, strict=True) if c <= cost]
        return low[0] if low else None


def fasgd_fig1(folder: Path, updates: int = 100_000, device: str = "cpu") -> ResultTable:
    """Validation cost of FASGD and SASGD where μλ = 128, for μ = 1, 4, 8 and 32."""
    return _figure(folder, "Figure 1", "fasgd_fig1.png", FIGURE_1, updates, device)


def fasgd_fig2(folder: Path, updates: int = 100_000, device: str = "cpu") -> ResultTable:
    """Validation cost of FASGD and SASGD where μ = 128, for λ = 250 to 10,000."""
    found = _figure(folder, "Figure 2", "fasgd_fig2.png", FIGURE_2, updates, device)
    ratios = [row[5] for row in found.rows if isinstance(row[5], float)]
    grows = len(ratios) == len(FIGURE_2) and ratios == sorted(ratios)
    claim = "the relative outperformance increases as λ goes up"
    says = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    verdict = f"{claim}: {'holds' if grows else 'does not hold at every step'} (SASGD/FASGD {says})"
    return ResultTable(
        found.title, found.columns, found.rows, (*found.notes, verdict), found.figures
    )


def _figure(
    folder: Path,
    name: str,
    file: str,
    panels: Sequence[tuple[int, int]],
    updates: int,
    device: str,
) -> ResultTable:
    lines: dict[tuple[int, int], dict[str, _Line]] = {}
    for batch_size, workers in panels:
        task = mnist_mlp(batch_size=batch_size, pixels="unit", device=device)
        order = schedule(cluster=Dispatcher(workers=workers), updates=updates)
        lines[batch_size, workers] = _lines(order, task, updates)
    path = folder / file
    _draw(path, f"FASGD paper, {name}: MNIST validation cost", lines)
    rows = tuple(_row(panel, pair) for panel, pair in lines.items())
    below = [panel for panel, pair in lines.items() if _below(pair)]
    claim = "FASGD converges to a better cost than SASGD"
    told = ", ".join(f"μ={m} λ={w}" for m, w in lines if (m, w) not in below)
    every = [line for pair in lines.values() for line in pair.values()]
    seconds = sum(line.ran_s for line in every), sum(line.prepared_s for line in every)
    notes = (
        f"{claim}: holds in {len(below)} of {len(panels)} panels"
        + (f", not {told}" if told else ""),
        f"{updates:,} updates a run, {len(every)} runs: {seconds[0]:.1f} s to run and evaluate, "
        f"after {seconds[1]:.1f} s to compile; {_machine(device)}",
    )
    columns = (
        "μ",
        "λ",
        "mean delay",
        "FASGD",
        "SASGD",
        "SASGD/FASGD",
        "FASGD first below",
        "seconds",
    )
    return ResultTable(f"FASGD paper, {name}: final validation cost", columns, rows, notes, (path,))


def _lines(order: Schedule, task: Task, updates: int) -> dict[str, _Line]:
    """Both rules, as one run where the GPU has room for that."""
    evaluate_every = max(1, updates // EVALUATIONS)
    if task.start().device.type != "cuda":
        return {
            label: _line(order, task, rule, evaluate_every) for label, (rule, _) in RULES.items()
        }
    from tardigrad.engine.fast.build_stack import check_stackable, stack_on_device, stacked_bytes
    from tardigrad.engine.together import drive_together

    rules = [rule for rule, _ in RULES.values()]
    jobs = check_stackable(order, [task] * len(rules), rules)
    room = check_budget(None, jobs[0].module.device) // stacked_bytes(jobs)
    at_once = len(rules) if room >= len(rules) else 1
    lines: list[_Line] = []
    for at in range(0, len(rules), at_once):
        started = time.perf_counter()
        stack = stack_on_device(jobs[at : at + at_once])
        prepared = time.perf_counter()
        ended = drive_together(stack, evaluate_every)
        took = (prepared - started) / at_once, (time.perf_counter() - prepared) / at_once
        lines += [
            _of(History() if isinstance(end, Diverged) else end.history, *took) for end in ended
        ]
        del stack  # its memory is wanted by the next
    return dict(zip(RULES, lines, strict=True))


def _line(order: Schedule, task: Task, rule: Rule, evaluate_every: int) -> _Line:
    started = time.perf_counter()
    execution = prepare(order, task, rule)
    prepared = time.perf_counter()
    try:
        history = drive(execution, evaluate_every).history
    except Diverged:
        history = History()
    return _of(history, prepared - started, time.perf_counter() - prepared)


def _of(history: History, prepared_s: float, ran_s: float) -> _Line:
    costs = history.column("validation_loss")
    return _Line(history.column("update"), costs, prepared_s, ran_s)


def _below(pair: dict[str, _Line]) -> bool:
    ours, theirs = pair["FASGD"].final, pair["SASGD"].final
    return ours is not None and (theirs is None or ours < theirs)


def _row(panel: tuple[int, int], pair: dict[str, _Line]) -> tuple[Cell, ...]:
    ours, theirs = pair["FASGD"].final, pair["SASGD"].final
    both = ours is not None and theirs is not None
    first = pair["FASGD"].reaches(theirs) if both and theirs is not None else None
    return (
        *panel,
        panel[1] - 1,
        "diverged" if ours is None else round(ours, 4),
        "diverged" if theirs is None else round(theirs, 4),
        round(theirs / ours, 3) if ours is not None and theirs is not None else None,
        None if first is None else f"update {int(first):,}",
        round(sum(line.ran_s for line in pair.values()), 1),
    )


def _draw(path: Path, title: str, lines: dict[tuple[int, int], dict[str, _Line]]) -> None:
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(2, 2, sharex=True)
    for axes, ((batch_size, workers), pair) in zip(grid.flat, lines.items(), strict=True):
        _panel(axes, pair)
        axes.set_title(f"μ = {batch_size}, λ = {workers:,}", fontsize=10)
    for axes in grid[1]:
        axes.set_xlabel("updates")
    for axes in grid[:, 0]:
        axes.set_ylabel("validation cost")
    figure.savefig(path, dpi=150)


def _panel(axes: Axes, pair: dict[str, _Line]) -> None:
    for label, line in pair.items():
        colour = RULES[label][1]
        if line.cost:
            axes.plot(line.update, line.cost, color=colour, linewidth=1.4, label=label)
    axes.set_yscale("log")
    axes.grid(True, which="both", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
    axes.legend(frameon=False)


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        where = torch.cuda.get_device_name(device)
    else:
        where = f"{platform.machine()}, {torch.get_num_threads()} threads"
    return f"torch {torch.__version__}, {where}"
