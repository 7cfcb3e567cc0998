"""Paired differences: each run minus the baseline's with the same seed.

What a seed brings to both, such as a hard schedule or lucky initial weights, cancels out, so few
seeds tell more than two means with their spreads do.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tardigrad.core.checks import nearest, require
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.report.intervals import LEVEL, mean_interval
from tardigrad.report.series import Series, metric_of

MINUS = "−"


class PairedDifference(NamedTuple):
    """How far the runs of one label end from the baseline's, over the seeds that both finished
    with finite numbers.

    `low` and `high`: the 95% interval of the mean by Student's t over `values`; None where there
    are fewer than two, and `mean` is None where there is none.
    """

    label: str
    baseline: str
    metric: str
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    mean: float | None
    low: float | None
    high: float | None


def paired_differences(
    series: Sequence[Series], metric: str, baseline: str | None = None
) -> list[PairedDifference]:
    """Of every other label and the baseline's, which is the first where none is named."""
    base = baseline_of(series, baseline)
    theirs, out = base.final_by_seed(metric), []
    for one in series:
        if one is base:
            continue
        mine = one.final_by_seed(metric)
        seeds = tuple(s for s in mine if s in theirs and math.isfinite(mine[s] - theirs[s]))
        values = tuple(mine[seed] - theirs[seed] for seed in seeds)
        found = mean_interval(values) if values else (None, None, None)
        out.append(PairedDifference(one.label, base.label, metric, seeds, values, *found))
    return out


def baseline_of(series: Sequence[Series], label: str | None) -> Series:
    """The first where none is named."""
    labels = [one.label for one in series]
    check_baseline(labels, label)
    return series[0 if label is None else labels.index(label)]


def check_baseline(labels: Sequence[str], label: str | None) -> None:
    require(
        label is None or label in labels,
        f"baseline {label!r} is not among what is compared{nearest(label, labels) or '.'} "
        f"There are {', '.join(labels)}",
    )


def differences_table(
    series: Sequence[Series], baseline: str | None = None, met_the_same: bool = False
) -> ResultTable | None:
    """Loss and accuracy against the baseline's; None where there is nothing to compare.

    met_the_same: whether every label met the same schedule, batches and initial weights.
    """
    metrics = [m for m in (metric_of(series, kind) for kind in ("loss", "accuracy")) if m]
    if len(series) < 2 or not metrics:
        return None
    base = baseline_of(series, baseline)
    found = [paired_differences(series, metric, base.label) for metric in metrics]
    most = max(len(one.summaries) for one in series)
    columns = ["rule"]
    for metric in metrics:
        name = metric.rpartition("_")[2]
        columns += [name, *([f"{name}, {LEVEL:.0%} interval"] if most > 1 else [])]
    columns += ["seeds"] if most > 1 else []
    rows = []
    for of_rule in zip(*found, strict=True):
        cells: list[Cell] = [of_rule[0].label]
        for one in of_rule:
            cells += [_mean(one), *([_interval(one)] if most > 1 else [])]
        pairs = len(of_rule[0].values)
        cells += [str(pairs) if pairs == most else f"{pairs} of {most}"] if most > 1 else []
        rows.append(tuple(cells))
    return ResultTable(
        title=f"difference from {base.label}, {pairing_words(met_the_same)}",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(interval_words(most),),
    )


def pairing_words(met_the_same: bool) -> str:
    if met_the_same:
        return "paired by seed: same schedule, batches and initial weights"
    return "paired by seed; not all met the same schedule, batches and initial weights"


def interval_words(seeds: int) -> str:
    if seeds < 2:
        return "one seed: no interval, which takes several (5, say)"
    return f"{LEVEL:.0%} intervals of the mean difference by Student's t over {seeds} seeds"


def signed(value: float, metric: str) -> str:
    """With its sign; accuracies in points of a hundred."""
    text = f"{100 * value:+.2f} pp" if metric.endswith("accuracy") else f"{value:+.3g}"
    return text.replace("-", MINUS)


def _mean(one: PairedDifference) -> str:
    return "–" if one.mean is None else signed(one.mean, one.metric)


def _interval(one: PairedDifference) -> str:
    if one.low is None or one.high is None:
        return "–"
    low, high = (signed(end, one.metric).removesuffix(" pp") for end in (one.low, one.high))
    return f"[{low}, {high}]"
