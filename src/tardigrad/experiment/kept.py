"""Cells executed, and what they come to kept in a folder as it comes."""

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import tomli_w

from tardigrad.core.checks import require
from tardigrad.engine.run import Say
from tardigrad.experiment.cells import Experiment, Outcome, RunCell
from tardigrad.experiment.side_by_side import CellProgress, execute_cells
from tardigrad.experiment.spec import Spec
from tardigrad.recording.folder import RunFolder, check_free

LOGS = "log"


def keep_outcomes(
    cells: Sequence[RunCell],
    folder: Path | None = None,
    jobs: int | None = 1,
    say: Say | None = None,
    progress: CellProgress | None = None,
    about: Experiment | None = None,
) -> list[Mapping[str, Any]]:
    """Execute every cell; all outcomes, as plain data but for the schedules of those shown.

    With a folder each is kept when it has ended, and stays there whatever happens to the others.
    Each cell's loggers write into a folder of its own in it. `about`: whose spec stands in it; left
    out: the first's.
    """
    logs = any(isinstance(cell.runs, Spec) and cell.runs.log for cell in cells)
    if folder is not None:
        check_free(folder)
        cells = [cell._replace(folder=folder / LOGS / _name(cell)) for cell in cells]
    require(
        folder is not None or not logs,
        "the spec has a [log], and loggers write into a folder: give folder=PATH, or take it out",
    )
    keeper = _Keeper(folder, about or cells[0].runs, at_once=logs)
    with keeper, closing(execute_cells(cells, jobs, say, progress)) as found:
        for outcome in found:
            keeper.add(outcome)
            if progress is not None:
                progress.ended(outcome)
    return keeper.outcomes


class _Keeper:
    """Makes the folder with the first outcome; before it, where loggers write into it."""

    def __init__(self, path: Path | None, about: Experiment, at_once: bool) -> None:
        self.outcomes: list[Mapping[str, Any]] = []
        self._path, self._about, self._at_once = path, about, at_once
        self._folder: RunFolder | None = None

    def __enter__(self) -> None:
        if self._at_once:
            self._make()

    def add(self, outcome: Outcome) -> None:
        data = outcome._asdict()
        made = data.pop("schedule")
        kept = {} if made is None else {"schedule": made}
        if self._path is not None:
            folder = self._make()
            named = {n: folder.add_shown_schedule(s, _name(outcome)) for n, s in kept.items()}
            folder.add_outcome(data | named)
        self.outcomes.append(data | kept)

    def __exit__(self, *error: object) -> None:
        if self._folder is not None and not self.outcomes:  # what failed at once leaves nothing
            shutil.rmtree(self._folder.path)

    def _make(self) -> RunFolder:
        if self._folder is None:
            assert self._path is not None
            text = tomli_w.dumps(self._about.data())
            if not isinstance(self._about, Spec):
                text = f"# Made of Python objects: a note for people, not a spec to run.\n{text}"
            self._folder = RunFolder.create(self._path, text, None)
        return self._folder


def _name(cell: RunCell | Outcome) -> str:
    """Of a folder or a file: the label as far as file systems take it, made unique by its place."""
    plain = re.sub(r"[^\w.=+-]+", "_", cell.label).strip("_.")[:80]
    return f"{cell.place:03}-{plain}-seed={cell.seed}"
