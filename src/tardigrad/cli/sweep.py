"""`tardigrad sweep`."""

from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.cells import places, watched
from tardigrad.cli.console import out, tell
from tardigrad.cli.report import show_results
from tardigrad.core.checks import number
from tardigrad.experiment import sweep as sweep_points


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment.")],
    axes: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=[VALUE,…]",
            help="What to sweep, such as rule.lr=[0.01,0.02]; KEY=VALUE is a change.",
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="How many seeds to repeat each point with [1].")
    ] = None,
    target: Annotated[
        float | None, typer.Option("--target", help="Also show when the loss came down to this.")
    ] = None,
    to: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            help="The folder [runs/NAME OF FILE-sweep], or a .pdf, .svg, .png, .csv or .tex beside "
            "it; may be given several times.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", help="Runs at a time [one per core, on a GPU enough to use it]."),
    ] = None,
) -> None:
    """Run an experiment at every combination of values: one table, one figure.

    Points that differ in task or rule alone meet the same schedule of late gradients; those that
    differ in the seed alone are one line, mean ± standard deviation. On the CPU each run is
    executed with one thread, in a process of its own where there is more than one core. On
    a GPU, runs that differ in rule and task.seed alone are stacked and executed as one; of others,
    several have a process each where one leaves the GPU idle.
    """
    if target is not None:
        number("target", target)
    folder, files = places(to, Path("runs") / f"{file.stem}-sweep")
    many = bool(seeds and seeds > 1) or any(word.startswith("seed=") for word in axes)
    with watched(folder, many) as bars:
        found = sweep_points(
            file, axes, seeds=seeds, jobs=jobs, folder=folder, say=tell, progress=bars
        )
    show_results(found, folder, target, files)
    out.print(f"everything is in {folder}")
