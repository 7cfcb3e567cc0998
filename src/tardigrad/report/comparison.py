"""A comparison's results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tardigrad.core.result_table import ResultTable
from tardigrad.recording.folder import RunFolder
from tardigrad.report.comparison_figure import comparison_figure
from tardigrad.report.results import Results
from tardigrad.report.series import Series, gathered, meet_the_same, metric_of, share_one_task
from tardigrad.report.tables import results_table
from tardigrad.report.titles import title_of


@dataclass(frozen=True, repr=False)
class Comparison(Results):
    """Rules side by side, over seeds: what `tg.compare` returns.

    `table()`, `differences()` and `differences_table()`, `frame()`, `plot(path)` and `save(path)`,
    whose path's ending says what to write: .csv, .tex, .pdf, .svg or .png; a folder gets all.
    """

    NAME = "comparison"
    EACH = "rule"

    @classmethod
    def of(
        cls,
        title: str,
        outcomes: Sequence[Mapping[str, Any]],
        baseline: str | None = None,
        folder: Path | None = None,
    ) -> "Comparison":
        same, one_task = meet_the_same(outcomes), share_one_task(outcomes)
        return cls(title, gathered(outcomes), same, baseline, folder, one_task)

    @classmethod
    def load(cls, path: str | Path, baseline: str | None = None) -> "Comparison | None":
        """The comparison in a folder; None where it holds something else."""
        outcomes = RunFolder.open(Path(path)).outcomes()
        if not outcomes or outcomes[0].get("point"):
            return None
        return cls.of(title_of(Path(path)), outcomes, baseline, Path(path))

    def table(self, target: float | None = None) -> ResultTable:
        return replace(results_table(self.series, target), notes=self.notes)

    def figure(self) -> Figure:
        compared = len(self.series) > 1 and metric_of(self.series)
        differences = self.differences() if compared else []
        return comparison_figure(self.title, self.series, differences, self.met_the_same)

    def names(self, one: Series) -> Mapping[str, Any]:
        return {"rule": one.label}
