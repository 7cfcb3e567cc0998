"""The planner's tables."""

import numpy as np

from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.planning.advice import Plan
from tardigrad.planning.needed import GRADIENTS, Needed


def policies_table(plan: Plan) -> ResultTable:
    """Every policy: speed, waiting, staleness, drops."""
    lasted_s = [measured.summary.lasted_s for measured in plan.measured]
    notes = [
        f"{plan.setting.enough:,} gradients each, which takes {_seconds(min(lasted_s))} to "
        f"{_seconds(max(lasted_s))} s of virtual time"
    ]
    last_s = max((absence.leaves_s for absence in plan.setting.cluster.absences), default=0.0)
    if last_s > min(lasted_s):
        notes.append(
            f"a worker leaves at {_seconds(last_s)} s, when some have ended: give more --gradients"
        )
    return ResultTable(
        title=f"Policies on {plan.setting.cluster.workers} workers",
        columns=("policy", "gradients/s", "waiting", "mean delay", "most", "dropped"),
        rows=tuple(
            (
                measured.label,
                measured.summary.gradients_per_s,
                f"{measured.summary.waiting:.1%}",
                measured.summary.delay.mean,
                int(measured.summary.delay.most),
                f"{measured.summary.dropped:.1%}",
            )
            for measured in plan.measured
        ),
        notes=tuple(notes),
    )


def collect_table(plan: Plan) -> ResultTable:
    """When the k-th gradient has come, for some k; where it never came, nothing is said."""
    came = np.isfinite(plan.times_s)
    most = int(came.sum(axis=1).max())
    last = range(max(1, most - 4), most + 1)
    ks = sorted({1, max(1, most // 2), max(1, most * 9 // 10), *last})
    rows: list[tuple[Cell, ...]] = []
    for k in ks:
        took = plan.times_s[:, k - 1][came[:, k - 1]]
        figures = (took.mean(), np.median(took), np.quantile(took, 0.95), took.max())
        rows.append((k, *map(float, figures)))
    columns: tuple[str, ...] = ("k", "mean", "median", "95%", "most")
    notes: tuple[str, ...] = ()
    if not came.all():
        columns = (*columns, "versions")
        rows = [(*row, f"{came[:, k - 1].mean():.1%}") for k, row in zip(ks, rows, strict=True)]
        notes = ("versions: the share of them that had so many gradients, the others had fewer",)
    return ResultTable(
        title="Time until the k-th gradient of a version has come, nobody being late (s)",
        columns=columns,
        rows=tuple(rows),
        notes=notes,
    )


def splits_table(plan: Plan) -> ResultTable:
    """Workers and backups, as simulated."""
    by_order = {split.backups: split for split in plan.estimated}
    least = plan.split.total_s
    return ResultTable(
        title="Workers + backups",
        columns=(
            "split",
            "gradients per update",
            "s per update",
            "by order statistics",
            "updates needed",
            "time ÷ least",
        ),
        rows=tuple(
            (
                f"{split.workers} + {split.backups}",
                split.gradients,
                split.update_s,
                by_order[split.backups].update_s if split.backups in by_order else None,
                split.updates,
                split.total_s / least,
            )
            for split in plan.simulated
        ),
        notes=(f"{GRADIENTS:,.0f} gradients are taken to be needed, each counting the same",)
        if plan.needed == Needed()
        else (),
    )


def speedup_table(plan: Plan) -> ResultTable:
    """What asynchrony brings."""
    return ResultTable(
        title="Asynchronous over synchronous, in gradients per second",
        columns=("workers", "async", "sync", "async ÷ sync"),
        rows=tuple((s.workers, s.async_per_s, s.sync_per_s, s.ratio) for s in plan.speedups),
        notes=("of the first so many workers",),
    )


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
