"""`tardigrad sweep`."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.compare import keep, tell_of_loggers
from tardigrad.cli.console import err, out, tell
from tardigrad.cli.progress import bar
from tardigrad.cli.report import show_run
from tardigrad.experiment import points, read_toml
from tardigrad.experiment import sweep as sweep_points
from tardigrad.recording.folder import check_free


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment.")],
    axes: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=[VALUE,…]",
            help="What to sweep, such as rule.lr=[0.01,0.02] seed=[0,1,2]; KEY=VALUE is a change.",
        ),
    ],
    target: Annotated[
        float | None, typer.Option("--target", help="Also tell when the loss came down to this.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="The folder [runs/NAME OF FILE-sweep].")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Points at a time [one per core].")
    ] = None,
) -> None:
    """Run an experiment at every combination of values: one table, one figure.

    Points that differ in task or rule alone meet the same schedule of late gradients. On the CPU
    each is executed with one thread, in a process of its own where there is more than one core. On
    a GPU, points that differ in rule and task.seed alone are stacked and executed as one run.
    """
    swept = points(read_toml(file), axes)
    folder = to or Path("runs") / f"{file.stem}-sweep"
    check_free(folder)
    tell_of_loggers(swept[0].spec)
    seeds = len({point.spec.seed for point in swept})
    progress = bar()
    progress.disable = not err.is_terminal
    with closing(sweep_points(swept, jobs, tell)) as found, progress:
        points_bar = progress.add_task(f"{file.stem}: points", total=len(swept), facts="")
        keep(folder, swept[0].spec, found, seeds, lambda: progress.advance(points_bar))
    show_run(folder, target)
    out.print(f"everything is in {folder}")
