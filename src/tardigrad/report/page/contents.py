"""What a page shows: runs from folders or as objects, with or without their schedules."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.own_code import title_name
from tardigrad.engine import Run
from tardigrad.engine.result_files import (
    LOSSES,
    read_numbers,
    rule_label,
    summarise,
)
from tardigrad.recording.folder import SPEC, RunFolder
from tardigrad.report.run_figure import run_title
from tardigrad.report.series import Series, load_series
from tardigrad.report.titles import title_of
from tardigrad.rules import RULES
from tardigrad.scheduling import Schedule


@dataclass(frozen=True)
class PageRun:
    """One run, or those of one label in a comparison. Without a schedule it has curves alone."""

    series: Series
    title: str
    schedule: Schedule | None = None
    losses: Sequence[float] = ()
    measured: Mapping[str, Sequence[float]] = field(default_factory=dict)
    spec: str = ""
    """What was run, to read: a spec file, or what the schedule says of itself."""
    command: str = ""
    """What to type to run it again; empty where no command does."""

    @property
    def label(self) -> str:
        return self.series.label

    @property
    def records(self) -> Sequence[dict[str, Any]]:
        """Evaluations of the first seed, which is the one that the schedule is of."""
        return self.series.runs[0] if self.series.runs else []

    def named(self, label: str) -> "PageRun":
        return replace(self, series=replace(self.series, label=label))


def runs_in(*paths: Path) -> list[PageRun]:
    """The runs in one folder or several: of a run, of a comparison, or of several runs."""
    found = [one for path in paths for one in _in_folder(path)]
    require(
        len(paths) == 1 or all(not RunFolder.open(path).outcomes() for path in paths),
        "several folders stand on one page only where each holds a single run: give a comparison "
        "alone",
    )
    return found if len(paths) == 1 else told_apart(found, [str(path) for path in paths])


def told_apart(runs: Sequence[PageRun], otherwise: Sequence[str]) -> list[PageRun]:
    """With labels of their own: the rules, with their policies where those are alike, or others."""
    rules = [one.label for one in runs]
    policies = [f"{one.label}, {_policy(one)}" for one in runs]
    choices = (rules, policies, otherwise)
    labels = next((each for each in choices if len(set(each)) == len(each)), otherwise)
    return [one.named(label) for one, label in zip(runs, labels, strict=True)]


def run_shown(run: Run) -> PageRun:
    """A run that need not be in a folder."""
    history, summary = run.history, summarise(run, 0.0)
    series = Series(rule_label(run.rule), [history.records], [summary])
    measured = {"gap": history.gap, "b_staleness": history.b_staleness}
    spec = _about(run.schedule, summary)
    return PageRun(series, run_title(run), run.schedule, history.loss, measured, spec)


def _in_folder(path: Path) -> list[PageRun]:
    folder, series = RunFolder.open(path), load_series(path)
    title = title_of(path)
    spec = (path / SPEC).read_text(encoding="utf-8") if folder.has_spec else ""
    if folder.outcomes():
        schedules = folder.shown_schedules()
        shown = [PageRun(one, title, schedules.get(one.label)) for one in series]
        return [replace(shown[0], spec=spec, command=_comparing(series, spec)), *shown[1:]]
    schedule = folder.executed()
    (one,) = series
    summary = one.summaries[0]
    command = ""
    if spec:
        words = ["--on ray"] * (summary.get("on") == "ray") + ["--impose"] * bool(
            summary.get("imposed")
        )
        command = " ".join(["tardigrad run", SPEC, *words])
    elif schedule is not None:
        spec = _about(schedule, summary)
    losses = read_numbers(path / LOSSES).get("loss", [])
    return [PageRun(one, title, schedule, losses, folder.gradients(), spec, command)]


def _comparing(series: Sequence[Series], spec: str) -> str:
    """The command that compares these rules; empty where they are not what such a command names."""
    labels = [one.label for one in series]
    known = all(label.partition(":")[0] in RULES for label in labels)
    if not known or spec.startswith("#"):
        return ""
    seeds = max(len(one.summaries) for one in series)
    words = ["tardigrad", "compare", SPEC, "--rules", ",".join(labels)]
    return shlex.join([*words, "--seeds", str(seeds)] if seeds > 1 else words)


def _policy(one: PageRun) -> str:
    about = one.schedule.about if one.schedule is not None else {}
    return title_name(str(about.get("policy", {}).get("name", "")))


def _about(schedule: Schedule, summary: Mapping[str, Any]) -> str:
    """Of a run that was made of objects in Python, what is known of them."""
    told = {"task": summary["task"], "rule": summary["rule"], **schedule.about}
    return json.dumps(told, indent=2, default=str)
