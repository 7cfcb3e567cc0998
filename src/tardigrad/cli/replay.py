"""`tardigrad replay`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import complain, out
from tardigrad.core.checks import require
from tardigrad.experiment import replay as replay_folder

CHECKPOINT = "replay-{updates}.safetensors"


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    until: Annotated[
        int | None, typer.Option("--until", help="Stop after this update and save a checkpoint.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replay even if what the bits depend on is not the same here."
        ),
    ] = False,
    trust_code: Annotated[
        bool,
        typer.Option(
            "--trust-code", help="Execute code that the run names, even if it never ran here."
        ),
    ] = False,
) -> None:
    """Execute a run's schedule again, simulated or real, and say whether every bit is the same.

    Exit code 1 where a version differs; the first one is named. With --until, everything known at
    that update is saved in the folder, for debugging.
    """
    checkpoint = None if until is None else run / CHECKPOINT.format(updates=until)
    require(
        checkpoint is None or not run.is_dir() or os.access(run, os.W_OK),
        f"{run} cannot be written to, and --until saves a checkpoint there: copy the folder, and "
        "replay the copy",
    )
    replayed = replay_folder(run, until, checkpoint, force, trust_code=trust_code)
    if checkpoint is not None:
        out.print(f"after update {replayed.updates:,}: {checkpoint}")
    wrong = replayed.difference
    if wrong is not None:
        complain(
            f"shard {wrong.shard} differs from the recorded run at version {wrong.version:,} "
            f"(digest {wrong.replayed}, recorded {wrong.recorded}), the first of those compared"
        )
        raise typer.Exit(1)
    again = f"{replayed.updates:,} updates executed again"
    if replayed.compared:
        out.print(f"identical bit for bit: {again}, {replayed.compared:,} digests compared")
    else:
        out.print(f"{again}; nothing was recorded of them to compare with")
