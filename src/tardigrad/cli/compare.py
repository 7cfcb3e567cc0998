"""`tardigrad compare`."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import complain, err, out, tell
from tardigrad.cli.progress import Watcher
from tardigrad.cli.report import show_run
from tardigrad.experiment import Entry, Outcome, Spec, entries, outcomes
from tardigrad.recording.folder import RunFolder, check_free
from tardigrad.scheduling import Schedule


def compare(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment.")],
    rules: Annotated[
        str, typer.Option("--rules", help="Such as sgd,fasgd:lr=0.005,my_rule.py:mine:lr=0.1")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to it, such as updates=500."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Repeat with so many seeds.")] = 1,
    target: Annotated[
        float | None, typer.Option("--target", help="Also tell when the loss came down to this.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="The folder [runs/NAME OF FILE-compare].")
    ] = None,
) -> None:
    """Compare rules on the same schedule of late gradients and the same batches.

    A rule takes lr, weight_decay, no_decay, ema and clip_norm from the file unless it says its own.
    With several seeds the table gives mean ± standard deviation; each seed is a schedule of its
    own.
    """
    spec = Spec.load(file, changes or ())
    folder = to or Path("runs") / f"{file.stem}-compare"
    compare_into(folder, spec, entries(spec, rules), seeds)
    show_run(folder, target)
    out.print(f"everything is in {folder}")


def compare_into(path: Path, spec: Spec, compared: Sequence[Entry], seeds: int = 1) -> None:
    """Every outcome into the folder as it comes, a line about each onto the screen."""
    check_free(path)
    tell_of_loggers(spec)
    with ExitStack() as bars:

        def begin(entry: Entry, seed: int, schedule: Schedule | None) -> Watcher:
            bars.close()
            label = f"{entry.label}, seed {seed}" if seeds > 1 else entry.label
            return bars.enter_context(closing(Watcher(label))).begin(schedule)

        keep(path, spec, outcomes(compared, seeds, begin), seeds, bars.close)


def keep(
    path: Path, spec: Spec, found: Iterable[Outcome], seeds: int, ended: Callable[[], None]
) -> None:
    """Make the folder with the first outcome and add the others; `ended` is called after each."""
    folder: RunFolder | None = None
    try:
        for outcome in found:
            ended()
            folder = folder or RunFolder.create(path, spec.toml(), None)
            folder.add_outcome(outcome._asdict())
            tell_outcome(outcome, seeds)
    except KeyboardInterrupt:
        ended()
        complain("stopped by Ctrl-C")
        done = len(folder.outcomes()) if folder else 0  # one may just have been written
        if done:
            tell(f"{path} holds the {done} runs that had ended: tardigrad report {path}")
        raise typer.Exit(130) from None


def tell_of_loggers(spec: Spec) -> None:
    if spec.log:
        tell("log: loggers are told of single runs; this one's evaluations are in its folder")


def tell_outcome(outcome: Outcome, seeds: int) -> None:
    which = f"{outcome.label}, seed {outcome.seed}" if seeds > 1 else outcome.label
    if outcome.summary["status"] == "diverged":
        err.print(f"  {which}: {outcome.summary['why']}", markup=False)
    else:
        seconds = outcome.summary["wall_s"]
        err.print(f"  {which}: done in {seconds:.1f} s", markup=False)
