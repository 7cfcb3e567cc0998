"""`tardigrad reproduce`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.checks import one_of
from tardigrad.cli.console import out
from tardigrad.cli.findings import show
from tardigrad.findings import Findings
from tardigrad.plan.studies import STUDIES
from tardigrad.reproduce import TRAININGS

REPRODUCTIONS: dict[str, Callable[[Path], Findings]] = {**STUDIES, **TRAININGS}
"""By name; each writes its figures into the folder it is given."""


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="|".join(REPRODUCTIONS))],
    to: Annotated[Path | None, typer.Option("--out", help="The folder [reproduced/NAME].")] = None,
) -> None:
    """Reproduce a published figure or table: print ours beside theirs, draw it."""
    one_of("name", name, REPRODUCTIONS)
    folder = to or Path("reproduced") / name
    folder.mkdir(parents=True, exist_ok=True)
    findings = REPRODUCTIONS[name](folder)
    findings.save_csv(folder / "table.csv")
    show(findings)
    out.print(f"table: {folder / 'table.csv'}", markup=False)
