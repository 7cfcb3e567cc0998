"""`tardigrad run`."""

import shlex
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import complain, out, tell
from tardigrad.cli.progress import Watcher
from tardigrad.cli.report import show_run
from tardigrad.engine import Diverged
from tardigrad.spec import Spec, saved_updates
from tardigrad.spec import run as run_spec


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
) -> None:
    """Run an experiment; its folder gets the spec, schedule, metrics, parameters and figures.

    A run that was stopped or killed goes on with --resume, and ends with the same bits as one
    that never stopped.
    """
    spec = Spec.load(file, changes or ())
    folder = to or Path("runs") / file.stem
    try:
        with closing(Watcher(file.stem)) as watcher:
            run_spec(spec, folder, resume=resume, begin=watcher.begin, say=tell)
    except KeyboardInterrupt:
        complain("stopped by Ctrl-C")
        tell(_saved(folder))
        tell(f"go on with: {_command(file, changes, folder)}")
        raise typer.Exit(130) from None
    except Diverged:
        tell(_saved(folder))
        raise
    show_run(folder)
    out.print(f"everything is in {folder}", markup=False)


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
