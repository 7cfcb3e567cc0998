"""`tardigrad reproduce`."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import out
from tardigrad.cli.show import show
from tardigrad.core.checks import one_of, require
from tardigrad.core.result_table import ResultTable
from tardigrad.planning.studies import STUDIES
from tardigrad.reproduce import TRAININGS

REPRODUCTIONS: dict[str, Callable[..., ResultTable]] = {**STUDIES, **TRAININGS}
"""By name; each writes its figures into the folder it is given, and takes the options it names."""


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="|".join(REPRODUCTIONS))],
    to: Annotated[Path | None, typer.Option("--out", help="The folder [reproduced/NAME].")] = None,
    updates: Annotated[int | None, typer.Option(help="Train shorter than the paper did.")] = None,
    device: Annotated[str | None, typer.Option(help="Train on this device, such as cuda.")] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="stragglers: a folder of logs [those of tardigrad list traces]."),
    ] = None,
) -> None:
    """Reproduce a published figure or table: print ours beside theirs, draw it."""
    one_of("name", name, REPRODUCTIONS)
    study = REPRODUCTIONS[name]
    given = {"updates": updates, "device": device, "traces": traces}
    options = {k: v for k, v in given.items() if v is not None}
    for option in options:
        require(option in inspect.signature(study).parameters, f"{name} does not take --{option}")
    folder = to or Path("reproduced") / name
    folder.mkdir(parents=True, exist_ok=True)
    findings = study(folder, **options)
    findings.save_csv(folder / "table.csv")
    show(findings)
    out.print(f"table: {folder / 'table.csv'}")
