"""Curves of a run by update, time and bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tardigrad.core.arrays import Floats, Ints
from tardigrad.report.figures import line_of, mean_curve
from tardigrad.report.page.packing import plain_numbers
from tardigrad.report.series import METRICS, Series
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.analysis import delays_at

SHOWN = 150
"""Points of a curve of single gradients or updates; of more, means over as many stretches."""
AXES = {"update": "update", "time": "time_s", "bytes": "bytes"}

Line = dict[str, Any]
"""`name`, and `by`: for each axis the two columns x and y."""


def evaluated_lines(series: Series, kind: str) -> list[Line]:
    """Of every split that has the metric, the mean over seeds."""
    out = []
    for split in METRICS:
        name = f"{split}_{kind}"
        runs = [[r for r in with_bytes(run) if name in r] for run in series.finished]
        if runs and all(runs):
            by = {}
            for axis, column in AXES.items():
                if all(column in record for run in runs for record in run):
                    curve = mean_curve([line_of(run, column, name) for run in runs])
                    assert curve is not None
                    by[axis] = [plain_numbers(curve.x, 17), plain_numbers(curve.y)]
            out.append({"name": name.replace("_", " "), "by": by})
    return out


def with_bytes(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Evaluations with the bytes that had crossed, both ways; unchanged where none were counted."""
    return [
        {**r, "bytes": r["push_bytes"] + r["pull_bytes"]} if "push_bytes" in r else dict(r)
        for r in records
    ]


def gradient_line(
    name: str, values: Sequence[float], schedule: Schedule, records: Sequence[Mapping[str, Any]]
) -> Line | None:
    """One value per gradient applied at shard 0, or per update where there are as many: means over
    stretches; by bytes, over the updates from one evaluation to the next."""
    first = schedule.group_shard == 0
    sizes, at_s = np.diff(schedule.group_start)[first], schedule.group_time_s[first]
    given = np.asarray(values, dtype=np.float64)
    if len(given) == len(at_s):
        sizes = np.ones_like(sizes)
    if not len(given) or sizes.sum() != len(given):
        return None  # a run that ended early, or a folder of an older version
    update = np.repeat(np.arange(1, len(at_s) + 1), sizes)
    ends = np.unique(np.linspace(0, len(given), min(len(given), SHOWN) + 1).astype(np.int64))[1:]
    means = plain_numbers(_means(given, ends))
    last = update[ends - 1]
    by = {
        "update": [last.tolist(), means],
        "time": [plain_numbers(at_s[last - 1], 17), means],
    }
    known = [r for r in with_bytes(records) if "bytes" in r and r["update"] > 0]
    if known:
        ends = np.searchsorted(update, [r["update"] for r in known], side="right")
        kept = np.diff(ends, prepend=0) > 0
        crossed = [float(r["bytes"]) for r, keep in zip(known, kept, strict=True) if keep]
        by["bytes"] = [crossed, plain_numbers(_means(given, ends[kept]))]
    return {"name": name, "by": by}


def delay_line(schedule: Schedule, records: Sequence[Mapping[str, Any]]) -> Line | None:
    return gradient_line("mean delay", delays_at(schedule, 0).tolist(), schedule, records)


def _means(values: Floats, ends: Ints) -> Floats:
    """Over the stretches that end before these places."""
    starts = np.concatenate([[0], ends[:-1]])
    sums = np.add.reduceat(values[: ends[-1]], starts)
    return np.asarray(sums / (ends - starts), dtype=np.float64)
