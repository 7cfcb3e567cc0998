"""`tardigrad plan`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import out, stopped, tell
from tardigrad.cli.show import show
from tardigrad.core.checks import require
from tardigrad.planning.goal import seconds_of
from tardigrad.planning.needed import Needed
from tardigrad.planning.planned import BUDGET, FIGURE, NOT_PROGRESS, RECOMMENDED
from tardigrad.planning.planned import plan as planned
from tardigrad.planning.what_if import Failures

REPAIR = "5m"


def plan(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="A log of step times (CSV, JSON lines), a name of tardigrad list traces, a spec, "
            "or a TOML file with [cluster] alone.",
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to the spec, such as updates=4000."),
    ] = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", help="The experiment to train; its cluster is LOG's.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="What is good enough: loss=0.5, accuracy=0.9.")
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", help="What a worker costs an hour.")
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", help="How long it may search: 90s, 5m, 2h.")
    ] = BUDGET,
    seeds: Annotated[int, typer.Option("--seeds", help="At most so many a candidate.")] = 5,
    workers: Annotated[
        str | None,
        typer.Option("--workers", help="How many machines there are, or a range such as 8:64."),
    ] = None,
    without_stragglers: Annotated[
        bool, typer.Option("--without-stragglers", help="What if none were slower?")
    ] = False,
    mtbf: Annotated[
        str | None,
        typer.Option("--mtbf", help="What if a worker failed that often (mean time, such as 6h)?"),
    ] = None,
    repair: Annotated[
        str | None, typer.Option("--repair", help="With --mtbf: time until it is replaced [5m].")
    ] = None,
    needed: Annotated[
        Path | None,
        typer.Option(
            help="Without --target: CSV of workers,updates: updates needed with so many gradients."
        ),
    ] = None,
    gradients: Annotated[
        int,
        typer.Option(
            "--gradients",
            help="How many gradients each policy is simulated for: a fifth of them over a network "
            "or with absences, and 20 a worker in any case.",
        ),
    ] = 20_000,
    async_gain: Annotated[
        float,
        typer.Option(help="Without --target: how much faster asynchrony must be to be worth it."),
    ] = 1.5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    to: Annotated[Path | None, typer.Option("--out", help="The folder [plans/NAME].")] = None,
) -> None:
    """Say what to run on a cluster: how long until the model is this good, and what it costs.

    LOG alone gives every policy's gradients per second, waiting, staleness and drops. That takes
    seconds: schedules are simulated, without tensors. With --spec and --target, at most 40
    candidates (policies, backups, rules, rates) are trained in virtual time until it is clear which
    reaches the target first, or the budget is spent. The folder gets a figure, plan.json and
    recommended.toml, an experiment ready to run from anywhere; a plan that was stopped goes on from
    there.
    """
    folder = to or Path("plans") / file.stem
    failures = None
    require(
        repair is None or mtbf is not None,
        "repair says how long a worker that failed is away, and nothing says how often: give "
        "--mtbf too, such as --mtbf 6h",
    )
    if mtbf is not None:
        failures = Failures(seconds_of("mtbf", mtbf), seconds_of("repair", repair or REPAIR))
    try:
        found = planned(
            file,
            spec,
            target,
            changes=changes or (),
            price=price,
            budget=budget,
            seeds=seeds,
            workers=workers,
            without_stragglers=without_stragglers,
            failures=failures,
            needed=Needed.load(needed) if needed else None,
            gradients=gradients,
            async_gain=async_gain,
            folder=folder,
            say=tell,
        )
    except KeyboardInterrupt as error:
        more = f"; {folder} holds what was trained: the same command goes on"
        raise stopped(error, more) from None
    found.save(folder)
    if as_json:
        print(json.dumps(found.data(), indent=2))
        return
    for guess in found.guesses:
        out.print(f"{file.name}: {guess}")
    for one in found.tables():
        show(one)
    if found.answer is None:
        out.print(NOT_PROGRESS)
    out.print(f"recommended: {found.why}")
    out.print(f"figure: {folder / FIGURE}")
    out.print(f"run it: tardigrad run {folder / RECOMMENDED}")
