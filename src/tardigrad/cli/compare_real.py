"""`tardigrad compare-real`."""

from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import out, tell
from tardigrad.cli.live import LiveTable
from tardigrad.cli.show import show, show_json
from tardigrad.core.checks import require
from tardigrad.experiment import Spec, compare_real_all
from tardigrad.experiment import compare_real as compare


def compare_real(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.toml", help="The experiment.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to it, such as rule.lr=0.01."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", help="The real run's folder [runs/NAME-real, runs/fidelity]."),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Not one experiment: 5 policies, each under 3 laws of step times."
        ),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option("--address", help="HOST:PORT of a Ray cluster [start one on this machine]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run on Ray with the cluster's step times imposed, and compare it with the simulation.

    --all takes about five minutes. Interrupted, it goes on with the runs that are missing.
    """
    if every:
        require(
            file is None,
            f"--all runs experiments of its own: leave {file} out, or compare it alone (without "
            "--all)",
        )
        folder = to or Path("runs") / "fidelity"
        findings = compare_real_all(folder, address, tell=tell)
    else:
        require(file is not None, "give the experiment's FILE.toml, or --all for 15 of our own")
        assert file is not None
        spec = Spec.load(file, changes or ())
        folder = to or Path("runs") / f"{file.stem}-real"
        with LiveTable(spec.updates) as table:
            findings = compare(spec, folder, address, watch=table.show, say=tell)
    if as_json:
        show_json(findings)
        return
    show(findings)
    out.print(f"{'all runs are' if every else 'the real run is'} in {folder}")
