"""`tardigrad report`."""

from pathlib import Path
from typing import Annotated

import typer

from tardigrad import report as reports
from tardigrad.cli.console import out
from tardigrad.folder import RunFolder


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
    series = reports.load(path)
    drawn = reports.draw(series, path, title_of(path))
    out.print(reports.results_table(series, target))
    for figure in drawn:
        out.print(f"figure: {figure}", markup=False)


def title_of(path: Path) -> str:
    spec = RunFolder.open(path).spec()
    workers = spec["cluster"].get("workers")
    name = spec["task"]["name"].replace("_", " ")
    return f"{name}, {workers} workers ({spec['cluster']['name']}), {spec['policy']['name']}"
