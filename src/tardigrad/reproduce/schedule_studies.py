"""Studies that schedules alone answer (`planning.studies`), and what they say of claims."""

from itertools import pairwise
from typing import Any

from tardigrad.planning.studies import (
    backup_workers,
    gap_aware_speedup,
    layer_staleness,
    psp_times,
    stragglers,
)
from tardigrad.reproduce.claims import NOT_YET, Verdict
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.tabled import rows_by_first, tabled

TRAINED = 32

speedup_study = tabled(
    "gap-aware-speedup",
    "Gap-Aware's Figure 12b: gradients per second, asynchronous over synchronous",
    gap_aware_speedup,
    {"workers": [1, 8, 32, 64, 128, 256, 512], "gradients": 20_000, "runs": 3},
)
times_study = tabled(
    "psp-times",
    "PSP's Table 1: times with rare large delays",
    psp_times,
    {"iterations": 100},
)
split_study = tabled(
    "backup-workers",
    "The backup paper's Figures 3, 4 and 6: the best split of 100 machines",
    backup_workers,
    {"rounds": 2000, "simulated_rounds": 100},
)
layers_study = tabled(
    "layer-staleness",
    "The backup paper's Table 1: delay by layer",
    layer_staleness,
    {"updates": 2000},
)

stragglers_study = tabled(
    "stragglers",
    "What stragglers cost in traces of real jobs: no paper's claim",
    stragglers,
)


def judge_speedup(found: FoundCells) -> Verdict:
    """Equal machines reach 21% (to 4 points) at the 32 workers that most was trained with, and
    different ones about 6 times at some number of workers."""
    rows: dict[Any, dict[str, Any]] = rows_by_first(found)
    if not rows:
        return NOT_YET
    equal, most = rows[TRAINED]["equal, limit"], max(rows)
    far = max(rows, key=lambda n: rows[n]["different, limit"])
    ours = (
        f"equal machines +{equal - 1:.0%} at {TRAINED} (+{rows[most]['equal, limit'] - 1:.0%} at "
        f"{most}), different ones {rows[far]['different, limit']:.1f}× at {far}"
    )
    if abs(equal - 1.21) < 0.04 and 4.5 < rows[far]["different, limit"] < 7.5:
        choice = f'"up to" taken for up to {TRAINED} workers: with more it goes on growing'
        return Verdict("holds with a choice", ours, choice)
    return Verdict("does not hold", ours, "the ratios are not near 1.21 and 6")


def judge_times(found: FoundCells) -> Verdict:
    """The published ratios to waiting for all, to 0.05, at one of the jitters assumed."""
    rows = rows_by_first(found)
    if not rows:
        return NOT_YET
    jitters = [name for name in next(iter(rows.values())) if name.startswith("ratio, ")]
    worst = {name: max(abs(row[name] - row["ratio"]) for row in rows.values()) for name in jitters}
    best = min(worst, key=lambda name: worst[name])
    told = ", ".join(f"{name} {row[best]:.2f} ({row['ratio']:.2f})" for name, row in rows.items())
    jitter = best.removeprefix("ratio, ")
    if worst[best] <= 0.05:
        choice = f"messages that vary by {jitter}, which the paper does not give and we fitted"
        return Verdict("holds with a choice", f"time ÷ all: {told}", choice)
    return Verdict("does not hold", f"time ÷ all: {told}", f"off by up to {worst[best]:.2f}")


def judge_split(found: FoundCells) -> Verdict:
    """By order statistics, as the paper does it, 96 + 4 is the best split."""
    rows = rows_by_first(found)
    if not rows:
        return NOT_YET
    best = {name: row["here"] for name, row in rows.items() if name.startswith("best split")}
    straight = next(v for n, v in best.items() if "order statistics, updates interp" in n)
    ours = "; ".join(f"{name.removeprefix('best split, ')}: {v}" for name, v in best.items())
    if straight == "96 + 4":
        choice = "straggler times fitted to the published ones, updates interpolated straight"
        return Verdict("holds with a choice", ours, choice)
    return Verdict("does not hold", ours, f"the best split is {straight}")


def judge_layers(found: FoundCells) -> Verdict:
    """Lower layers are staler throughout, and the bottom one about as the paper measured."""
    rows = rows_by_first(found)
    if not rows:
        return NOT_YET
    even = [(layer, row["mean delay, equal"]) for layer, row in sorted(rows.items())]
    known = [mean for _, mean in even if mean is not None]
    falls = all(a >= b for a, b in pairwise(known))
    fitted = {n: (rows[n]["mean delay, fitted"], rows[n]["published"]) for n in (0, 11, 12, 18)}
    ours = ", ".join(f"layer {n}: {a:.1f} ({b:g})" for n, (a, b) in fitted.items())
    if not falls:
        return Verdict("does not hold", ours, "a lower layer is fresher")
    choice = "spans fitted at layers 0, 11 and 18; layer 12 cannot be fresher than 18 above it"
    return Verdict("holds with a choice", ours, choice)
