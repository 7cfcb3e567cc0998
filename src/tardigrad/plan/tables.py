"""The planner's tables."""

import numpy as np

from tardigrad.findings import Findings
from tardigrad.plan.advice import Plan


def policies_table(plan: Plan) -> Findings:
    """Every policy: speed, waiting, staleness, drops."""
    return Findings(
        title=f"Policies on {plan.cluster.workers} workers",
        columns=("policy", "gradients/s", "waiting", "mean delay", "most", "dropped"),
        rows=tuple(
            (
                judged.label,
                judged.summary.gradients_per_s,
                f"{judged.summary.waiting:.1%}",
                judged.summary.delay.mean,
                int(judged.summary.delay.most),
                f"{judged.summary.dropped:.1%}",
            )
            for judged in plan.judged
        ),
    )


def collect_table(plan: Plan) -> Findings:
    """When the k-th gradient has come, for some k."""
    workers = plan.times_s.shape[1]
    last = range(max(1, workers - 4), workers + 1)
    ks = sorted({1, max(1, workers // 2), max(1, workers * 9 // 10), *last})
    rows = []
    for k in ks:
        took = plan.times_s[:, k - 1]
        mean, middle = float(np.nanmean(took)), float(np.nanmedian(took))
        rows.append((k, mean, middle, float(np.nanquantile(took, 0.95)), float(np.nanmax(took))))
    return Findings(
        title="Time to collect the k-th gradient, all workers starting together (s)",
        columns=("k", "mean", "median", "95%", "most"),
        rows=tuple(rows),
    )


def splits_table(plan: Plan) -> Findings:
    """Workers and backups, as simulated."""
    by_order = {split.backups: split for split in plan.estimated}
    least = plan.split.total_s
    return Findings(
        title="Workers + backups",
        columns=("split", "s per update", "by order statistics", "updates needed", "time ÷ least"),
        rows=tuple(
            (
                f"{split.workers} + {split.backups}",
                split.update_s,
                by_order[split.backups].update_s if split.backups in by_order else None,
                split.updates,
                split.total_s / least,
            )
            for split in plan.simulated
        ),
    )


def speedup_table(plan: Plan) -> Findings:
    """What asynchrony brings."""
    return Findings(
        title="Asynchronous over synchronous, in gradients per second",
        columns=("workers", "async", "sync", "async ÷ sync"),
        rows=tuple((s.workers, s.async_per_s, s.sync_per_s, s.ratio) for s in plan.speedups),
    )
