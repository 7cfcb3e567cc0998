"""`tardigrad run`."""

import shlex
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import out, stopped, tell
from tardigrad.cli.evaluation_lines import EvaluationLines
from tardigrad.cli.live import LiveTable
from tardigrad.cli.progress import Watcher
from tardigrad.cli.report import show_run
from tardigrad.engine import Diverged
from tardigrad.engine.resume import saved_updates
from tardigrad.experiment import Spec, run_on_ray
from tardigrad.experiment import run as run_spec
from tardigrad.recording.folder import RunFolder


class Where(Enum):
    """Where a run happens."""

    simulator = "simulator"
    ray = "ray"


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to it, such as rule.lr=0.01."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="The run's folder [runs/NAME OF FILE].")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that is in the folder.")
    ] = False,
    on: Annotated[
        Where,
        typer.Option(
            "--on", help="In virtual time on this machine, or on real processes with Ray."
        ),
    ] = Where.simulator,
    address: Annotated[
        str | None,
        typer.Option("--address", help="HOST:PORT of a Ray cluster [start one on this machine]."),
    ] = None,
    impose: Annotated[
        bool, typer.Option("--impose", help="On Ray: make workers keep the cluster's step times.")
    ] = False,
) -> None:
    """Run an experiment; its folder gets the spec, schedule, metrics, parameters and figures.

    A run that was stopped or killed goes on with --resume; a simulated one ends with the same bits
    as one that never stopped, and a finished one is made longer by more updates. A
    run on Ray records its schedule: **tardigrad replay** repeats it.
    """
    spec = Spec.load(file, changes or ())
    folder = to or Path("runs") / file.stem
    if on is Where.simulator and (address or impose):
        raise ValueError("--address and --impose are for runs on Ray: add --on ray")
    lines = [EvaluationLines()]
    try:
        if on is Where.ray:
            with LiveTable(spec.updates) as table:
                run_on_ray(
                    spec, folder, address, resume, impose, table.show, say=tell, observers=lines
                )
        else:
            with closing(Watcher(file.stem)) as watcher:
                run_spec(spec, folder, resume, begin=watcher.begin, say=tell, observers=lines)
    except KeyboardInterrupt as error:
        end = stopped(error)
        if on is Where.simulator:
            tell(_saved(folder))
        more = _options(on, address, impose)
        tell(f"go on with: {_command(file, changes, folder)}{more}")
        raise end from None
    except Diverged:
        if on is Where.simulator:
            tell(_saved(folder))
        raise
    show_run(folder)
    ended = RunFolder.open(folder).summary()
    if ended.get("ended_by", "updates") != "updates":
        out.print(f"ended at update {ended['updates']:,}: {ended['why']}")
    out.print(f"everything is in {folder}")


def _options(on: Where, address: str | None, impose: bool) -> str:
    words = [" --on ray"] if on is Where.ray else []
    words += [f"--address {address}"] if address else []
    return " ".join([*words, "--impose"] if impose else words)


def _saved(folder: Path) -> str:
    if not folder.exists():
        return "nothing had been written yet"
    updates = saved_updates(folder)
    if not updates:
        return f"no checkpoint had been made yet; {folder} holds the spec and the schedule"
    return f"{folder} holds the checkpoint after update {updates:,}"


def _command(file: Path, changes: list[str] | None, folder: Path) -> str:
    words = ["tardigrad", "run", str(file), *(changes or []), "--out", str(folder), "--resume"]
    return shlex.join(words)
