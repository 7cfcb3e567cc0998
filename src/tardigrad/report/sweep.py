"""A sweep's results: one table, the best points first, each over its seeds."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tardigrad.core.checks import require
from tardigrad.core.own_code import title_name
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.recording.folder import RunFolder
from tardigrad.report.differences import PairedDifference
from tardigrad.report.results import Results, is_numeric, value_text
from tardigrad.report.series import Series, gathered, meet_the_same, metric_of
from tardigrad.report.sweep_figure import sweep_figure
from tardigrad.report.tables import (
    clock,
    judged_by,
    judged_columns,
    lost_words,
    note_of,
    spread_words,
    took_columns,
)

SEED = "seed"


@dataclass(frozen=True, repr=False)
class Sweep(Results):
    """An experiment at every combination of values, over seeds: what `tg.sweep` returns.

    `table()`, `differences(baseline=LABEL)`, `frame()`, `plot(path)` and `save(path)`, whose path's
    ending says what to write: .csv, .tex, .pdf, .svg or .png; a folder gets all. Points stand by
    how few of their runs have diverged, then by their mean final loss.
    """

    points: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By label, the values that make a point; points that differ in the seed alone are one."""

    NAME = "sweep"
    EACH = "point"

    @classmethod
    def of(
        cls, title: str, outcomes: Sequence[Mapping[str, Any]], folder: Path | None = None
    ) -> "Sweep":
        """title: what is learned."""
        points = {
            o["label"]: {k: v for k, v in o["point"].items() if k != SEED} or {"rule": o["label"]}
            for o in outcomes
        }
        found = gathered(outcomes)
        loss = metric_of(found)

        def place(one: Series) -> tuple[int, float, list[str]]:
            finals = one.final(loss) if loss else []
            mean = statistics.fmean(finals) if finals else math.inf
            return (
                one.diverged,
                mean if math.isfinite(mean) else math.inf,
                [repr(v) for v in points[one.label].values()],
            )

        keys = [key for key in outcomes[0]["point"] if key != SEED] or [SEED]
        title = f"{title}: {' × '.join(keys)}"
        ordered = sorted(found, key=place)
        return cls(title, ordered, meet_the_same(outcomes), folder=folder, points=points)

    @classmethod
    def load(cls, path: str | Path) -> "Sweep | None":
        """The sweep in a folder; None where it holds something else."""
        folder = RunFolder.open(Path(path))
        outcomes = folder.outcomes()
        if not outcomes or not outcomes[0].get("point"):
            return None
        return cls.of(title_name(folder.spec()["task"]["name"]), outcomes, Path(path))

    @property
    def keys(self) -> list[str]:
        """What is swept, seeds aside."""
        return list(self.names(self.series[0]))

    def values(self, key: str) -> list[Any]:
        """What a key takes, numbers in order."""
        texts = {value_text(point[key]): point[key] for point in self.points.values()}
        found = list(texts.values())
        return sorted(found) if all(map(is_numeric, found)) else [texts[t] for t in sorted(texts)]

    def names(self, one: Series) -> Mapping[str, Any]:
        return self.points[one.label]

    def table(self, target: float | None = None) -> ResultTable:
        """A line per point: its values, where it ended and the best it has been, what that took."""
        judged = judged_columns(self.series, target, best=True) or {"loss": lost_words}
        took = took_columns(self.series)
        if "updates" in self.keys:
            del took["updates"]
        some = [one for one in self.series if 0 < one.diverged < len(one.summaries)]
        rows = []
        for one in self.series:
            cells: list[Cell] = [value_text(value) for value in self.names(one).values()]
            columns = [*judged.values(), *took.values()]
            if one.diverged == len(one.summaries):
                cells += [next(iter(judged.values()))(one), *[None] * (len(columns) - 1)]
            else:
                cells += [column(one) for column in columns]
            if some:
                cells.append(note_of(one).strip(" ()") or None)
            rows.append(tuple(cells))
        order = f"{'fewest diverged, then ' if some else ''}lowest final loss first"
        words = [judged_by(metric_of(self.series)), order, clock(self.series).time]
        return ResultTable(
            title=", ".join([*words, *spread_words(self.series)]),
            columns=(*self.keys, *judged, *took, *(["diverged"] if some else [])),
            rows=tuple(rows),
            keys=len(self.keys),
        )

    def tables(self, target: float | None = None) -> list[ResultTable]:
        return [self.table(target)]

    def differences(
        self, metric: str | None = None, baseline: str | None = None
    ) -> list[PairedDifference]:
        """As of a comparison. The baseline must be named: the best point was found by these very
        runs, so intervals against it would claim too much."""
        labels = [one.label for one in self.series]
        require(
            baseline is not None,
            f"say with which point the others are compared: differences(baseline={labels[0]!r})",
        )
        return super().differences(metric, baseline)

    def figure(self) -> Figure:
        values = {key: self.values(key) for key in self.keys}
        return sweep_figure(self.title, self.series, self.points, values)
