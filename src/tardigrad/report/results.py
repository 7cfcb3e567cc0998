"""What comparisons and sweeps have in common: runs by label and seed, as tables, figures, files."""

import csv
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from matplotlib.figure import Figure

from tardigrad.core.checks import require
from tardigrad.core.latex import PREAMBLE
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.result_files import write
from tardigrad.report.differences import (
    PairedDifference,
    baseline_of,
    differences_table,
    paired_differences,
)
from tardigrad.report.figures import FORMATS, save_figure
from tardigrad.report.series import Series, first_below, metric_of

ENDINGS = (*FORMATS, ".csv", ".tex")
FACTS = ("updates", "gradients", "time_s", "mean_delay", "wall_s")


@dataclass(frozen=True, repr=False)
class Results(ABC):
    """Runs by label and seed.

    met_the_same: whether all labels met the same schedule, batches and initial weights, seed by
        seed.
    baseline: whose runs the others' are compared with; None: the first's.
    folder: where they are kept; None: nowhere.
    """

    title: str
    series: Sequence[Series]
    met_the_same: bool = False
    baseline: str | None = None
    folder: Path | None = None
    one_task: bool = False
    """Whether all seeds had the same task, so that they differ in schedules alone."""

    NAME: ClassVar[str]
    """Of the files made of it."""
    EACH: ClassVar[str]
    """What a label stands for."""

    def __post_init__(self) -> None:
        baseline_of(self.series, self.baseline)

    @abstractmethod
    def table(self, target: float | None = None) -> ResultTable:
        """A line per label, over its seeds. `target`: also when the loss came down to it."""

    @abstractmethod
    def figure(self) -> Figure: ...

    @abstractmethod
    def names(self, one: Series) -> Mapping[str, Any]:
        """What tells a label's runs from others', by column."""

    def differences(
        self, metric: str | None = None, baseline: str | None = None
    ) -> list[PairedDifference]:
        """Paired, seed by seed: where runs of each other label end, less where the baseline's do.

        metric: such as "validation_accuracy"; None: the loss by which runs are judged.
        """
        known = self.metrics
        metric = metric or metric_of(self.series)
        require(metric in known, f"there is no {metric or 'loss'} of all runs, but of {known}")
        assert metric is not None
        return paired_differences(self.series, metric, baseline or self.baseline)

    def differences_table(self, baseline: str | None = None) -> ResultTable | None:
        """The same of loss and accuracy, as a table; None where there is nothing to compare."""
        return differences_table(self.series, baseline or self.baseline, self.met_the_same)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the table must know beside it."""
        if not self.one_task:
            return ()
        return (
            "one task for all seeds: they differ in their schedules, not in batches and initial "
            "weights; a function of the seed gives each its own",
        )

    def tables(self, target: float | None = None) -> list[ResultTable]:
        return [t for t in (self.table(target), self.differences_table()) if t is not None]

    @property
    def metrics(self) -> list[str]:
        """What the last evaluation of every finished run has."""
        ends = [run[-1] for one in self.series for run in one.finished]
        first = ends[0] if ends else {}
        wanted = [n for n in first if n.rpartition("_")[0] in ("validation", "test", "train")]
        wanted += [n for n in first if n == "batch_loss" or n.endswith("_ema")]
        return [name for name in wanted if all(name in end for end in ends)]

    def frame(self) -> Any:
        """Every evaluation as a row of a pandas DataFrame, with its run's names and seed."""
        try:
            import pandas
        except ImportError:
            raise ValueError(
                f"frame() needs pandas: pip install pandas, or take records() of this {self.NAME}"
            ) from None
        return pandas.DataFrame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """Every evaluation, with its run's names and seed."""
        return [
            {**self.names(one), "seed": seed, **record}
            for one in self.series
            for seed, run in zip(one.seeds, one.runs, strict=True)
            for record in run
        ]

    def plot(self, path: str | Path | None = None) -> Figure:
        """One figure; into a .png, .pdf or .svg where a path is given."""
        if path is not None:
            check_ending(path, FORMATS)
        made = self.figure()
        if path is not None:
            save_figure(made, path)
        return made

    def save(self, path: str | Path, target: float | None = None) -> list[Path]:
        """What the path's ending asks for (.csv, .tex, .pdf, .svg, .png), or all into a folder."""
        path = Path(path)
        if not path.suffix:
            path.mkdir(parents=True, exist_ok=True)
            made = [path / f"{self.NAME}{ending}" for ending in ENDINGS]
        else:
            made = [path]
        for one in made:
            check_ending(one)
            if one.suffix == ".csv":
                write(one, self.csv(target))
            elif one.suffix == ".tex":
                tables = [table.latex() for table in self.tables(target)]
                write(one, "\n".join([PREAMBLE, *tables]))
            else:
                self.plot(one)
        return made

    def csv(self, target: float | None = None) -> str:
        """A row per run with every digit: where it ended, the best it has been, what it took."""
        loss = metric_of(self.series)
        metrics = [m for m in (loss, metric_of(self.series, "accuracy")) if m]
        aim = None if loss is None or target is None else (loss, target)
        keys = list(self.names(self.series[0]))
        facts = [fact for fact in FACTS if fact not in keys]
        named = [f"{which}_{metric}" for metric in metrics for which in ("final", "best")]
        named += [f"time_s_to_{target:g}"] if aim else []
        text = io.StringIO()
        out = csv.writer(text, lineterminator="\n")
        out.writerow([*keys, "seed", "status", "diverged_at", *named, *facts])
        for one in self.series:
            names = [value_text(value) for value in self.names(one).values()]
            for seed, run, summary in zip(one.seeds, one.runs, one.summaries, strict=True):
                alone = Series(one.label, [run], [summary])
                found: list[Any] = [""] * len(named)
                if alone.finished:
                    found = [
                        (of(m) or [math.nan])[0]
                        for m in metrics
                        for of in (alone.final, alone.best)
                    ]
                    found += [first_below(run, *aim)] if aim else []
                ended = [summary["status"], summary.get("at", "")]
                took = [summary.get(fact, "") for fact in facts]
                out.writerow([*names, seed, *ended, *found, *took])
        return text.getvalue()

    def __repr__(self) -> str:
        """Two lines: what was run, and how it came out."""
        loss, runs = metric_of(self.series), sum(len(one.summaries) for one in self.series)
        seeds = max(len(one.summaries) for one in self.series)
        lost = sum(one.diverged for one in self.series)
        many = f"{len(self.series)} {self.EACH}s, {seeds} seed{'s' * (seeds > 1)}, {runs} runs"
        told = f"{type(self).__name__}: {self.title}: {many}{f', {lost} diverged' if lost else ''}"
        finals = {one.label: one.final(loss) for one in self.series} if loss else {}
        means = {label: sum(each) / len(each) for label, each in finals.items() if each}
        means = {label: mean for label, mean in means.items() if math.isfinite(mean)}
        if not means:
            what = "all are infinite or NaN" if any(finals.values()) else "nothing was evaluated"
            return f"{told}\n  {what}; see .table()"
        best = min(means, key=means.__getitem__)
        return f"{told}\n  lowest mean {loss} at the end: {best}, {means[best]:.4g}; see .table()"


def check_ending(path: str | Path, endings: Sequence[str] = ENDINGS) -> None:
    """Refuse a name that says no format, or a folder that is not there."""
    path = Path(path)
    require(
        path.suffix in endings,
        f"{path} does not say what to write: its name must end in {', '.join(endings)}",
    )
    require(path.parent.is_dir(), f"{path} cannot be written: there is no folder {path.parent}")


def value_text(value: Any) -> str:
    """A swept value as a reader would write it; a table by its name where it has nothing else."""
    if isinstance(value, dict) and list(value) == ["name"]:
        return str(value["name"])
    return value if isinstance(value, str) else json.dumps(value)


def is_numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
