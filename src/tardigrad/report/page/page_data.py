"""All that a page's scripts are given, as plain data."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tardigrad.core.version import __version__
from tardigrad.report.clocks import clock_of
from tardigrad.report.page.contents import PageRun
from tardigrad.report.page.curves import Line, delay_line, evaluated_lines, gradient_line
from tardigrad.report.page.notices import notices
from tardigrad.report.page.packing import plain_numbers
from tardigrad.report.page.timeline_data import timeline_data
from tardigrad.report.tables import results_table
from tardigrad.report.timeline import delay_colours

MOST_BARS = 120
"""Of the distribution of delays; wider ones where there are more delays."""


def page_data(runs: Sequence[PageRun], title: str) -> dict[str, Any]:
    """All that the scripts are given."""
    series = [one.series for one in runs]
    table = results_table(series)
    clock = clock_of(facts for one in series for facts in one.summaries)
    return {
        "title": title,
        "version": __version__,
        "clock": clock._asdict(),
        "runs": [_run_data(one) for one in runs],
        "delays": _distributions(runs),
        "notices": notices(runs),
        "table": {"title": table.title, "columns": table.columns, "rows": table.texts()},
        "colours": _colours(),
    }


def _run_data(one: PageRun) -> dict[str, Any]:
    schedule = one.schedule
    losses = gradient_line("batch loss", one.losses, schedule, one.records) if schedule else None
    gap = one.measured.get("gap", ())
    gaps = gradient_line("gap", gap, schedule, one.records) if schedule and len(gap) else None
    curves: dict[str, list[Line | None]] = {
        "loss": [*evaluated_lines(one.series, "loss"), losses if any(one.losses) else None],
        "accuracy": [*evaluated_lines(one.series, "accuracy")],
        "gap": [gaps],
        "delay": [delay_line(schedule, one.records) if schedule else None],
    }
    return {
        "label": one.label,
        "title": one.title,
        "timeline": timeline_data(schedule) if schedule and schedule.rows else None,
        "curves": {name: [line for line in lines if line] for name, lines in curves.items()},
        "spec": one.spec,
        "command": one.command,
    }


def _distributions(runs: Sequence[PageRun]) -> list[dict[str, Any]]:
    """Those of one schedule are alike, and one."""
    alike: dict[tuple[int, ...], list[PageRun]] = {}
    for one in runs:
        alike.setdefault(tuple(one.series.delay_counts), []).append(one)
    width = max(1, -(-max(map(len, alike)) // MOST_BARS))
    out = []
    for counts, members in alike.items():
        bins = np.add.reduceat(counts, np.arange(0, len(counts), width)) if counts else np.zeros(1)
        shares = plain_numbers(bins / max(1, sum(counts)))
        label = ", ".join(one.label for one in members)
        if len(members) > 2:
            label = f"{members[0].label} and {len(members) - 1} others on its schedule"
        mean = members[0].series.mean_delay
        first = next(place for place, one in enumerate(runs) if one is members[0])
        told = {"label": label, "mean": mean, "width": width, "shares": shares}
        out.append({**told, "first": first})
    return out


def _colours() -> list[str]:
    shades = delay_colours()(np.linspace(0, 1, 64))[:, :3]
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in (shades * 255).round().astype(int).tolist()]
