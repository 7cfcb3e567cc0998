"""`tardigrad reproduce`."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import out, stopped, tell
from tardigrad.cli.show import show
from tardigrad.core.checks import count, one_of, require
from tardigrad.planning.studies import stragglers
from tardigrad.reproduce import STUDIES
from tardigrad.reproduce.filling import fill, find, write_up
from tardigrad.reproduce.kept_cells import KeptCell
from tardigrad.reproduce.schedule_studies import stragglers_study


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=", ".join(STUDIES))],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run a small form: minutes on a CPU, shows the direction."),
    ] = False,
    device: Annotated[str, typer.Option(help="Train on this device, such as cuda.")] = "cpu",
    cells: Annotated[
        str, typer.Option("--cells", help='Only cells of these names, such as "N=32/*".')
    ] = "*",
    jobs: Annotated[
        int, typer.Option("--jobs", help="Cells at a time, each in a process of its own.")
    ] = 1,
    to: Annotated[Path | None, typer.Option("--out", help="The folder [results/NAME].")] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="stragglers: a folder of logs [those of tardigrad list traces]."),
    ] = None,
) -> None:
    """Reproduce a published figure or table, cell by cell: ours beside theirs, drawn.

    A cell is one run. Each is kept as it ends. The same command again runs what is missing, and
    cells that another machine ran may be copied into the folder. **tardigrad claims** judges by
    what is there.
    """
    one_of("name", name, STUDIES)
    count("jobs", jobs)
    study, folder = STUDIES[name], to or Path("results") / name
    if traces is not None:
        require(name == stragglers_study.name, f"{name} does not take --traces")
        _show_stragglers(traces, to or Path("reproduced") / name)
        return
    said = ["--quick"] if quick else []
    said += ["--device", device] if device != "cpu" else []
    said += ["--cells", cells] if cells != "*" else []
    said += ["--jobs", str(jobs)] if jobs > 1 else []
    command = shlex.join(["tardigrad", "reproduce", name, *said])  # wherever it is kept
    try:
        found = fill(study, folder, quick, device, cells, jobs, command, tell, _tell_cell)
    except KeyboardInterrupt as error:
        end = stopped(error)
        kept = len(find(study, folder, quick).cells)
        tell(f"{folder} holds {kept} cells; the same command goes on")
        raise end from None
    show(write_up(study, found, folder))
    out.print(f"everything is in {folder}")


def _show_stragglers(traces: Path, folder: Path) -> None:
    """Of one's own logs: no result that is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    found = stragglers(folder, traces)
    found.save_csv(folder / "table.csv")
    show(found)
    out.print(f"table: {folder / 'table.csv'}")


def _tell_cell(cell: KeptCell) -> None:
    took = cell.made.get("wall_s")
    tell(f"  {cell.name}: {cell.status}" + ("" if took is None else f" in {took:.1f} s"))
