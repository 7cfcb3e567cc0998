"""`tardigrad report`."""

from pathlib import Path
from typing import Annotated

import typer

from tardigrad import report as reports
from tardigrad.cli.console import out
from tardigrad.cli.show import show
from tardigrad.core.own_code import title_name
from tardigrad.engine.result_files import SCHEDULE
from tardigrad.recording.folder import RunFolder

TRACED = 20_000
"""How many updates go into a trace file: some megabytes, which Perfetto opens at once."""


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's or comparison's folder.")],
    target: Annotated[
        float | None, typer.Option("--target", help="Also tell when the loss came down to this.")
    ] = None,
) -> None:
    """Print a folder's table and draw its figures again, from what is in it."""
    show_run(run, target)


def show_run(path: Path, target: float | None = None) -> None:
    """Figures into the folder, the table and their names onto the screen."""
    sweep = reports.Sweep.load(path)
    if sweep is not None:
        picture, values = path / "sweep.png", path / "sweep.csv"
        reports.draw_sweep(sweep, picture)
        reports.write_csv(sweep, values, target)
        show(reports.sweep_table(sweep, target))
        out.print(f"figure: {picture}\ntable: {values}")
        return
    series = reports.load_series(path)
    drawn = [*reports.draw(series, path, title_of(path)), *_timeline(path), *_staleness(path)]
    show(reports.results_table(series, target))
    for figure in drawn:
        out.print(f"{'trace' if figure.suffix == '.json' else 'figure'}: {figure}")


def _timeline(path: Path) -> list[Path]:
    """Who computed, waited and was dropped; a comparison has a schedule per entry, and no file."""
    folder = RunFolder.open(path)
    if not (path / SCHEDULE).exists():
        return []
    made = folder.schedule()
    picture, trace = path / "timeline.png", path / "timeline.perfetto.json"
    reports.draw_timeline(made, picture, title=title_of(path))
    reports.write_trace(made, trace, updates=min(made.groups, TRACED))
    return [picture, trace]


def _staleness(path: Path) -> list[Path]:
    """Delay, gap and B-staleness beside each other, where the run measured them."""
    picture = path / "staleness.png"
    measured = RunFolder.open(path).gradients()
    return [picture] if reports.draw_staleness(measured, picture, title_of(path)) else []


def title_of(path: Path) -> str:
    """Task, workers and what gave them their times, policy."""
    folder = RunFolder.open(path)
    summary = folder.summary()
    if not folder.has_spec:
        about = folder.schedule().about
        names = (str(about.get(part, {}).get("name", "")) for part in ("cluster", "policy"))
        return reports.made_title(summary["task"], summary["workers"], *names)
    spec = folder.spec()
    cluster = spec["cluster"]
    # A trace says in its file how many there are.
    workers = cluster.get("workers") or (summary or folder.outcomes()[0]["summary"])["workers"]
    times, policy = (spec[part]["name"].rpartition(":")[2] for part in ("cluster", "policy"))
    if summary.get("on") == "ray":
        times = f"Ray, keeping {times} times" if summary.get("imposed") else "Ray"
    return f"{title_name(spec['task']['name'])}, {workers} workers ({times}), {policy}"
