"""A comparison's results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tardigrad.core.checks import require
from tardigrad.core.result_table import ResultTable
from tardigrad.recording.folder import RunFolder
from tardigrad.report.compared_timelines import compared_panels
from tardigrad.report.comparison_figure import comparison_figure
from tardigrad.report.figures import FORMATS
from tardigrad.report.results import Results, check_ending
from tardigrad.report.series import Series, gathered, meet_the_same, metric_of, share_one_task
from tardigrad.report.tables import results_table
from tardigrad.report.timeline import draw_timelines
from tardigrad.report.titles import title_of
from tardigrad.scheduling import Schedule


@dataclass(frozen=True, repr=False)
class Comparison(Results):
    """Rules side by side, over seeds: what `tg.compare` returns.

    `table()`, `differences()` and `differences_table()`, `frame()`, `plot(path)`,
    `plot_timelines(path)` and `save(path)`, whose path's ending says what to write: .csv, .tex,
    .pdf, .svg or .png; a folder gets all.
    """

    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    """Of runs with the first seed, by label; one for those that met the same, and a few at most."""

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
        shown = sorted((one for one in outcomes if "schedule" in one), key=lambda one: one["place"])
        made = {one["label"]: one["schedule"] for one in shown}
        return cls(title, gathered(outcomes), same, baseline, folder, one_task, made)

    @classmethod
    def load(cls, path: str | Path, baseline: str | None = None) -> "Comparison | None":
        """The comparison in a folder; None where it holds something else."""
        outcomes = RunFolder.open(Path(path)).outcomes()
        if not outcomes or outcomes[0].get("point"):
            return None
        found = cls.of(title_of(Path(path)), outcomes, baseline, Path(path))
        return replace(found, schedules=RunFolder.open(Path(path)).shown_schedules())

    def table(self, target: float | None = None) -> ResultTable:
        return replace(results_table(self.series, target), notes=self.notes)

    def figure(self) -> Figure:
        compared = len(self.series) > 1 and metric_of(self.series)
        differences = self.differences() if compared else []
        return comparison_figure(self.title, self.series, differences, self.met_the_same)

    def save(self, path: str | Path, target: float | None = None) -> list[Path]:
        made = super().save(path, target)
        if not Path(path).suffix and self.schedules:
            made.append(self.plot_timelines(Path(path) / "timeline.png"))
        return made

    def plot_timelines(self, path: str | Path) -> Path:
        """Who computed, waited and was dropped, coloured by delay: a panel for each schedule that
        runs with the first seed met, on one clock."""
        require(bool(self.schedules), "this comparison has no schedules: it was kept without them")
        check_ending(path, FORMATS)
        panels, lanes, told = compared_panels(self.series, self.schedules)
        draw_timelines(panels, path, workers=lanes, heading=f"{self.title}: {told}")
        return Path(path)

    def names(self, one: Series) -> Mapping[str, Any]:
        return {"rule": one.label}
