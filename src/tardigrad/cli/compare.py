"""`tardigrad compare`."""

from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.cells import places, watched
from tardigrad.cli.console import out, tell
from tardigrad.cli.report import show_results
from tardigrad.core.checks import number
from tardigrad.experiment import Spec
from tardigrad.experiment import compare as compare_rules


def compare(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment.")],
    rules: Annotated[
        str,
        typer.Option("--rules", help="What to compare: sgd,fasgd:lr=0.005,my_rule.py:mine:lr=0.1"),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to it, such as updates=500."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="How many seeds to repeat each with.")] = 1,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="The rule to compare others with [the first].")
    ] = None,
    target: Annotated[
        float | None, typer.Option("--target", help="Also show when the loss came down to this.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            help="Runs at a time, each in a process of its own [1; on a GPU enough to use it].",
        ),
    ] = None,
    to: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            help="The folder [runs/NAME OF FILE-compare], or a .pdf, .svg, .png, .csv or .tex "
            "beside it; may be given several times.",
        ),
    ] = None,
) -> None:
    """Compare rules on the same schedule of late gradients and the same batches.

    A rule takes lr, rate_scale, weight_decay, no_decay and ema from the file unless it says its
    own. Each seed has a schedule, batches and initial weights of its own, the same for
    every rule. The first table has the mean ± standard deviation over seeds, the second the
    differences from the baseline, paired by seed, with 95% intervals. Figures show the curves, the
    differences and the timelines.
    """
    if target is not None:
        number("target", target)
    spec = Spec.load(file, changes or ())
    on_gpu = str(spec.task.get("device", "cpu")).startswith("cuda")
    if jobs is None and not on_gpu:
        jobs = 1
    folder, files = places(to, Path("runs") / f"{file.stem}-compare")
    with watched(folder, seeds > 1) as bars:
        found = compare_rules(
            spec,
            rules,
            seeds=seeds,
            baseline=baseline,
            jobs=jobs,
            folder=folder,
            say=None if jobs == 1 else tell,
            progress=bars,
        )
    show_results(found, folder, target, files)
    out.print(f"everything is in {folder}")
