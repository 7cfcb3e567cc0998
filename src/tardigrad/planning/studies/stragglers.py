"""What stragglers cost synchronous training on real clusters, and what each policy would save."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from tardigrad.clusters import Trace
from tardigrad.clusters.shipped import TRACES
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import require
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.planning.candidates import deadline_of
from tardigrad.planning.figures import COLOURS, draw_panels, finish_axes
from tardigrad.planning.measure import Measured, Setting
from tardigrad.policies import Async, Backup, Deadline, Policy, SoftSync, StaleSynchronous, Sync

BARS = tuple(COLOURS[i] for i in (4, 2, 3, 5, 0))
NAMES = ("one backup", "deadline", "softsync, 4 groups", "stale synchronous, 3", "async")


def stragglers(folder: Path, traces: Path | None = None) -> ResultTable:
    """What stragglers cost synchronous training in measured traces, and what policies would save

    Of every trace, the steps s that all N workers w have made, t(w, s) being their times:

        slowdown  S = Σ_s max_w t(w, s) / Σ_s mean_w t(w, s)
        cost      S − 1: the time that synchronous training takes more than without stragglers
        waste     1 − 1/S: the share of the workers' hours that are spent waiting for them

    What a policy saves is 1 − (its time per applied gradient) / (that of `Sync`), with the times
    in the order in which they were recorded, over and over. No messages take time. Policies that
    drop gradients or apply late ones pay for that in progress, which is not counted here.

    Args:
        traces: a folder of logs; left out: the traces that come with the package.
    """
    rows: list[tuple[Cell, ...]] = []
    found: dict[str, tuple[float, list[float]]] = {}
    for name, trace in _traces(traces).items():
        aligned_s = trace.log().aligned_s()
        require(
            aligned_s.shape[0] > 1 and aligned_s.shape[1] > 1,
            f"{name}: the workers have fewer than two steps in common, or there is one worker",
        )
        slow = slowdown(aligned_s)
        setting = Setting(trace, gradients=trace.workers * max(200, 4 * len(aligned_s)))
        usual = setting.measure(Sync())
        policies = _policies(trace.workers, setting.collect_times_s())
        saved = [_saved(usual, setting.measure(policy)) for policy in policies]
        free = setting.measure(Async()).summary
        found[name] = slow - 1, saved
        rows.append(
            (
                name,
                trace.workers,
                len(aligned_s),
                f"{slow - 1:.1%}",
                f"{1 - 1 / slow:.1%}",
                *(f"{share:.1%}" for share in saved),
                free.delay.mean,
            )
        )
    figure = folder / "stragglers.png"
    draw_panels(
        figure,
        "Real traces: what waiting for stragglers costs, and what not waiting saves",
        lambda axes: _draw_costs(axes, {name: cost for name, (cost, _) in found.items()}),
        lambda axes: _draw_saved(axes, {name: saved for name, (_, saved) in found.items()}),
    )
    return ResultTable(
        title="Stragglers in real traces",
        columns=(
            *("trace", "workers", "steps", "cost", "waste"),
            *(f"saved: {name}" for name in NAMES),
            "async, mean delay",
        ),
        rows=tuple(rows),
        notes=(
            "cost: Σ max over workers ÷ Σ mean over workers of the step times, minus 1; waste: the "
            "share of the workers' hours that is waiting",
            "saved: time per applied gradient, of that of synchronous training, in recorded order; "
            "gradients that are late or dropped teach less, which only training shows",
        ),
        figures=(figure,),
    )


def slowdown(times_s: Floats) -> float:
    """S = Σ max / Σ mean of the times (steps, workers)."""
    return float(times_s.max(axis=1).sum() / times_s.mean(axis=1).sum())


def _traces(folder: Path | None) -> dict[str, Trace]:
    if folder is None:
        return {name: Trace(name, order="recorded") for name in TRACES}
    files = sorted(p for p in folder.glob("*") if p.suffix in (".csv", ".tsv", ".jsonl", ".json"))
    require(bool(files), f"{folder} holds no logs: .csv, .tsv, .json or .jsonl")
    return {path.stem: Trace(str(path), order="recorded") for path in files}


def _policies(workers: int, times_s: Floats) -> list[Policy]:
    """In the order of `NAMES`."""
    return [
        Backup(1),
        Deadline(deadline_of(times_s)),
        SoftSync(groups=min(4, workers)),
        StaleSynchronous(bound=3),
        Async(),
    ]


def _saved(usual: Measured, measured: Measured) -> float:
    return 1 - usual.summary.gradients_per_s / measured.summary.gradients_per_s


def _draw_costs(axes: Axes, costs: dict[str, float]) -> None:
    places = np.arange(len(costs))
    axes.barh(places, [100 * cost for cost in costs.values()], color=COLOURS[1], height=0.6)
    for place, cost in zip(places, costs.values(), strict=True):
        axes.annotate(f" {cost:.1%}", (100 * cost, float(place)), va="center")
    axes.set_yticks(places, list(costs))
    axes.invert_yaxis()
    axes.set_xlim(0, 118 * max(costs.values()))
    finish_axes(axes, "time that synchronous training takes more (%)", "")


def _draw_saved(axes: Axes, saved: dict[str, list[float]]) -> None:
    height = 0.8 / len(NAMES)
    for number, (name, colour) in enumerate(zip(NAMES, BARS, strict=True)):
        places = np.arange(len(saved)) + (number - (len(NAMES) - 1) / 2) * height
        shares = [100 * each[number] for each in saved.values()]
        axes.barh(places, shares, height=height, color=colour, label=name)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(np.arange(len(saved)), list(saved))
    axes.invert_yaxis()
    finish_axes(axes, "time per gradient saved, of synchronous training's (%)", "")
    axes.legend(frameon=False, fontsize=9, loc="best")
