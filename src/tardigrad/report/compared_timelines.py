"""The timelines of a comparison: a panel for each schedule that its runs met."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tardigrad.report.series import Series
from tardigrad.report.timeline import MOST_WORKERS, panel_title
from tardigrad.scheduling import Schedule

MOST_LANES = 32
"""Of several panels together; a single one has as many as a run's own timeline."""
MOST_NAMES = 4


class ComparedPanels(NamedTuple):
    """Schedules by title, how many workers of each are shown, what a reader must know of them."""

    panels: Mapping[str, Schedule]
    lanes: int
    told: str


def compared_panels(series: Sequence[Series], schedules: Mapping[str, Schedule]) -> ComparedPanels:
    """Runs that met one schedule are named in one panel."""
    lanes = MOST_WORKERS if len(schedules) == 1 else MOST_LANES // len(schedules)
    firsts = {one.label: _first(one) for one in series}
    marks = {label: _mark(label, facts) for label, (_, facts) in firsts.items()}
    panels = {}
    for label, schedule in schedules.items():
        alike = [other for other, mark in marks.items() if mark == marks[label]]
        names = ", ".join(alike)
        if len(alike) > MOST_NAMES:
            names = f"{', '.join(alike[: MOST_NAMES - 1])} and {len(alike) - MOST_NAMES + 1} more"
        panels[f"{names} ({panel_title(schedule, min(lanes, schedule.workers))})"] = schedule
    seeds = max(len(one.seeds) for one in series)
    many = len(set(marks.values()))
    words = [f"seed {firsts[next(iter(schedules))][0]}" + (f", one of {seeds}" * (seeds > 1))]
    words += [f"{len(panels)} of {many} different schedules"] * (len(panels) < many)
    return ComparedPanels(panels, lanes, "; ".join(words))


def _first(one: Series) -> tuple[int, Mapping[str, Any]]:
    """The first seed, and its summary."""
    return min(zip(one.seeds, one.summaries, strict=True), key=lambda each: each[0])


def _mark(label: str, summary: Mapping[str, Any]) -> str:
    """Of its schedule: the same for runs that met the same one."""
    return str(summary.get("meets", "")).partition("-")[0] or label
