"""`tardigrad compare-real`."""

from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import out, tell
from tardigrad.cli.live import LiveTable
from tardigrad.cli.show import show, show_json
from tardigrad.experiment import Spec
from tardigrad.experiment import compare_real as compare


def compare_real(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to it, such as rule.lr=0.01."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="The real run's folder [runs/NAME-real].")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="HOST:PORT of a Ray cluster [start one on this machine]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run on Ray with the cluster's step times imposed, beside what the simulation predicts."""
    spec = Spec.load(file, changes or ())
    folder = to or Path("runs") / f"{file.stem}-real"
    with LiveTable(spec.updates) as table:
        findings = compare(spec, folder, address, watch=table.show, say=tell)
    if as_json:
        show_json(findings)
        return
    show(findings)
    out.print(f"the real run is in {folder}")
