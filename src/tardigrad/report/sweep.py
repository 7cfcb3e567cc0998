"""A sweep's results: one table, sorted by where points end."""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tardigrad.core.own_code import title_name
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.engine.result_files import write
from tardigrad.recording.folder import RunFolder
from tardigrad.report.clocks import clock_of, time_text
from tardigrad.report.series import first_below, gathered, metric_of
from tardigrad.report.tables import judged_by


@dataclass(frozen=True)
class Swept:
    """One point: the values that make it, and what it came to."""

    values: Mapping[str, Any]
    records: Sequence[dict[str, float]]
    summary: Mapping[str, Any]

    @property
    def diverged(self) -> bool:
        return bool(self.summary["status"] == "diverged")

    @property
    def gradients(self) -> int:
        """How many were applied; folders of 0.1 do not say it, and count as one an update."""
        return int(self.summary.get("gradients", self.summary["updates"]))

    def final(self, metric: str) -> float:
        return self.records[-1][metric]

    def best(self, metric: str) -> float:
        """Over all evaluations, the first before any update among them."""
        column = [record[metric] for record in self.records if metric in record]
        return max(column) if metric.endswith("accuracy") else min(column)


@dataclass(frozen=True)
class Sweep:
    """All points that have ended, the lowest final loss first and diverged ones last.

    `loss` and `accuracy`: the metrics by which points are judged, None where they have none in
    common.
    """

    title: str
    points: Sequence[Swept]
    loss: str | None
    accuracy: str | None

    @classmethod
    def load(cls, path: str | Path) -> "Sweep | None":
        """The sweep in a folder; None where it holds something else."""
        folder = RunFolder.open(Path(path))
        outcomes = folder.outcomes()
        if not outcomes or not outcomes[0].get("point"):
            return None
        series = gathered(outcomes)
        loss, accuracy = metric_of(series, "loss"), metric_of(series, "accuracy")
        found = [Swept(o["point"], o["records"], o["summary"]) for o in outcomes]

        def place(point: Swept) -> tuple[float, list[str]]:
            end = math.inf if point.diverged or not loss else point.final(loss)
            return end, [repr(value) for value in point.values.values()]

        task = title_name(folder.spec()["task"]["name"])
        title = f"{task}: {' × '.join(outcomes[0]['point'])}"
        return cls(title, sorted(found, key=place), loss, accuracy)

    @property
    def keys(self) -> list[str]:
        return list(self.points[0].values)

    @property
    def metrics(self) -> list[str]:
        return [metric for metric in (self.loss, self.accuracy) if metric]

    def values(self, key: str) -> list[Any]:
        """What a key takes, numbers in order."""
        texts = {value_text(point.values[key]): point.values[key] for point in self.points}
        found = list(texts.values())
        return sorted(found) if all(map(is_numeric, found)) else [texts[t] for t in sorted(texts)]


def value_text(value: Any) -> str:
    """A swept value as a reader would write it; a table by its name where it has nothing else."""
    if isinstance(value, dict) and list(value) == ["name"]:
        return str(value["name"])
    return value if isinstance(value, str) else json.dumps(value)


def sweep_table(sweep: Sweep, target: float | None = None) -> ResultTable:
    """A line per point: its values, where it ended and the best it has been, and what that took.

    `target`: also the time at which the loss first came down to it.
    """
    clock = clock_of(point.summary for point in sweep.points)
    judged: dict[str, Callable[[Swept], Cell]] = {}
    for metric in sweep.metrics:
        name = metric.rpartition("_")[2]
        judged[name] = partial(_text, metric, Swept.final)
        judged[f"best {name}"] = partial(_text, metric, Swept.best)
    if sweep.loss and target is not None:
        judged[f"to {target:g} ({clock.unit})"] = partial(_reached, sweep.loss, target)
    judged = judged or {"loss": lambda point: None}
    took: dict[str, Callable[[Swept], Cell]] = {}
    if "updates" not in sweep.keys:
        took["updates"] = lambda point: int(point.summary["updates"])
    if any(point.gradients != point.summary["updates"] for point in sweep.points):
        took["gradients"] = lambda point: point.gradients
    took[f"time ({clock.unit})"] = lambda point: time_text(point.summary["time_s"])
    rows = []
    for point in sweep.points:
        cells: list[Cell] = [value_text(point.values[key]) for key in sweep.keys]
        if point.diverged:
            cells += [f"diverged at update {point.summary['at']:,}"]
            cells += [None] * (len(judged) - 1 + len(took))
        else:
            cells += [cell(point) for cell in (*judged.values(), *took.values())]
        rows.append(tuple(cells))
    return ResultTable(
        title=f"{judged_by(sweep.loss)}, lowest final loss first, {clock.time}",
        columns=(*sweep.keys, *judged, *took),
        rows=tuple(rows),
        keys=len(sweep.keys),
    )


def _text(metric: str, of: Callable[[Swept, str], float], point: Swept) -> str:
    value = of(point, metric)
    return f"{value:.2%}" if metric.endswith("accuracy") else f"{value:.4g}"


def _reached(metric: str, target: float, point: Swept) -> str:
    time_s = first_below(point.records, metric, target)
    return "–" if time_s is None else time_text(time_s)


def write_csv(sweep: Sweep, path: str | Path, target: float | None = None) -> None:
    """The table with every digit, and what each schedule was like."""
    known = ("updates", "gradients", "time_s", "mean_delay", "wall_s")
    facts = [fact for fact in known if fact not in sweep.keys]
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    named = [f"{which}_{metric}" for metric in sweep.metrics for which in ("final", "best")]
    aim = None if sweep.loss is None or target is None else (sweep.loss, target)
    if aim:
        named.append(f"time_s_to_{target:g}")
    out.writerow([*sweep.keys, "status", "diverged_at", *named, *facts])
    for point in sweep.points:
        results: list[Any] = [""] * len(named)
        if not point.diverged:
            results = [f(metric) for metric in sweep.metrics for f in (point.final, point.best)]
            results += [first_below(point.records, *aim)] if aim else []
        keys = [value_text(point.values[key]) for key in sweep.keys]
        summary = point.summary
        ended = [summary["status"], summary.get("at", "")]
        out.writerow([*keys, *ended, *results, *(summary.get(fact, "") for fact in facts)])
    write(Path(path), text.getvalue())


def is_numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
