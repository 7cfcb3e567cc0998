"""Comparisons and sweeps on the screen while they go, and where their results go."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.progress import Progress

from tardigrad.cli.console import err, stopped, tell
from tardigrad.cli.progress import Watcher, bar
from tardigrad.core.checks import require
from tardigrad.experiment import CellProgress, Outcome, RunCell
from tardigrad.recording.folder import RunFolder
from tardigrad.report import ENDINGS, check_ending
from tardigrad.scheduling import Schedule

NOT_WRITTEN = (".eps", ".gif", ".html", ".jpeg", ".jpg", ".json", ".md", ".ps", ".txt", ".xlsx")
"""Endings that mean a file, of kinds that are not written."""


class Bars(CellProgress):
    """A bar for the run that goes, or for how many have ended; a line for each that has."""

    def __init__(self, many: bool) -> None:
        self._many = many
        self._watcher: Watcher | None = None
        self._cells: Progress | None = None

    def planned(self, cells: int, jobs: int) -> None:
        if jobs > 1 and err.is_terminal:
            self._cells = bar()
            self._cells.start()
            self._task = self._cells.add_task("runs", total=cells, facts="")

    def began(self, cell: RunCell, schedule: Schedule | None) -> Watcher:
        label = f"{cell.label}, seed {cell.seed}" if self._many else cell.label
        self._watcher = Watcher(label).begin(schedule)
        return self._watcher

    def ended(self, outcome: Outcome) -> None:
        if self._watcher is not None:
            self._watcher.close()
        if self._cells is not None:
            self._cells.advance(self._task)
        tell_outcome(outcome, self._many)

    def close(self) -> None:
        """Take them away."""
        if self._watcher is not None:
            self._watcher.close()
        if self._cells is not None:
            self._cells.stop()


@contextmanager
def watched(folder: Path, many: bool) -> Iterator[Bars]:
    """Bars while the block runs; Ctrl-C or SIGTERM says what is kept, and ends the command.

    many: whether there are several seeds.
    """
    bars = Bars(many)
    try:
        yield bars
    except KeyboardInterrupt as error:
        bars.close()
        end = stopped(error)
        done = len(RunFolder(folder).outcomes())
        if done:
            tell(f"{folder} holds the {done} runs that had ended: tardigrad report {folder}")
        raise end from None
    finally:
        bars.close()


def tell_outcome(outcome: Outcome, many: bool) -> None:
    which = f"{outcome.label}, seed {outcome.seed}" if many else outcome.label
    if outcome.summary["status"] == "diverged":
        err.print(f"  {which}: {outcome.summary['why']}", markup=False)
    else:
        seconds = outcome.summary["wall_s"]
        err.print(f"  {which}: done in {seconds:.1f} s", markup=False)


class Places(NamedTuple):
    """Where results go."""

    folder: Path
    files: list[Path]


def places(said: Sequence[Path] | None, usual: Path) -> Places:
    """What --out says: a folder, files by their endings, or both.

    Without a folder it is the usual one; the next free, where only files were asked for.
    """
    files = [path for path in said or () if path.suffix in (*ENDINGS, *NOT_WRITTEN)]
    for path in files:
        check_ending(path)
    folders = [path for path in said or () if path not in files]
    require(len(folders) < 2, f"--out names two folders, {' and '.join(map(str, folders[:2]))}")
    if folders:
        return Places(folders[0], files)
    return Places(next_free(usual) if files else usual, files)


def next_free(path: Path) -> Path:
    """The path, or the first of path-2, path-3, … that is not there."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
