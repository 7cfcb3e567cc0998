"""Cells of a study as files: each is written when it has ended, whole or not at all.

`FOLDER/cells/N=32/GA/seed=0.json`; those of the quick form are in `FOLDER/quick/cells`. Files that
another machine wrote may be copied in.
"""

import fnmatch
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tardigrad.engine.result_files import write
from tardigrad.experiment.spec_data import clipping_in_work
from tardigrad.report.intervals import mean_interval

CELLS = "cells"
QUICK = "quick"


@dataclass(frozen=True)
class KeptCell:
    """What one cell came to, and how it was made."""

    name: str
    status: str
    """ "finished", or "diverged"."""
    asked: Mapping[str, Any]
    figures: Mapping[str, Any]
    """The last evaluation of a run and facts of its schedule; of a measurement all it gave."""
    records: Sequence[Mapping[str, float]] = ()
    """Every evaluation of a run."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """Machine, versions, command, commit, seconds."""

    @property
    def diverged(self) -> bool:
        return self.status == "diverged"


@dataclass(frozen=True)
class FoundCells:
    """The cells of a study that are there, of those that are planned."""

    study: str
    quick: bool
    planned: Sequence[str]
    cells: Mapping[str, KeptCell]

    @property
    def empty(self) -> list[str]:
        return [name for name in self.planned if name not in self.cells]

    def matching(self, pattern: str) -> list[KeptCell]:
        """Those that are there, in the order planned."""
        names = fnmatch.filter(self.planned, pattern)
        return [self.cells[name] for name in names if name in self.cells]

    def value(self, name: str, figure: str, diverged: float | None = None) -> float | None:
        """A figure of a cell; None where the cell is empty."""
        cell = self.cells.get(name)
        if cell is None:
            return None
        return diverged if cell.diverged else cell.figures.get(figure)

    def values(self, stem: str, figure: str, diverged: float | None = None) -> list[float]:
        """The same over the seeds that are there: cells "STEM/seed=0" and so on."""
        names = [cell.name for cell in self.matching(f"{stem}/seed=*")]
        found = [self.value(name, figure, diverged) for name in names]
        return [one for one in found if one is not None]

    def mean(self, stem: str, figure: str, diverged: float | None = None) -> float | None:
        found = self.values(stem, figure, diverged)
        return statistics.fmean(found) if found else None

    def text(self, stem: str, figure: str, scale: float = 1.0, digits: int = 2) -> str:
        """Mean ± deviation over seeds; "empty" where no cell is there."""
        kept = self.matching(f"{stem}/seed=*")
        if not kept:
            return "empty"
        ended = [scale * value for value in self.values(stem, figure)]
        lost = sum(cell.diverged for cell in kept)
        if not ended:
            return "diverged" if lost else "not evaluated"
        words = f"{statistics.fmean(ended):.{digits}f}"
        if len(ended) > 1:
            words += f" ± {statistics.stdev(ended):.{digits}f} ({len(ended)})"
        return words + (f", {lost} diverged" if lost else "")


def points_apart(
    found: FoundCells, one: str, other: str, figure: str, diverged: float
) -> list[float]:
    """How far one ends from another, in points, for each seed that has both: a seed is a schedule,
    batches and initial weights."""
    out = []
    for cell in found.matching(f"{one}/seed=*"):
        seed = cell.name.rpartition("/")[2]
        mine, theirs = (found.value(f"{stem}/{seed}", figure, diverged) for stem in (one, other))
        if mine is not None and theirs is not None:
            out.append(100 * (mine - theirs))
    return out


def paired(found: FoundCells, one: str, other: str, figure: str, diverged: float) -> str:
    """The mean of the differences with its 95% interval; nothing where fewer than two seeds have
    both."""
    pairs = points_apart(found, one, other, figure, diverged)
    if len(pairs) < 2:
        return ""
    mean, low, high = mean_interval(pairs)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def form_folder(folder: Path, quick: bool) -> Path:
    """Where a form's cells, table and figures are."""
    return folder / QUICK if quick else folder


def cell_file(folder: Path, quick: bool, name: str) -> Path:
    return form_folder(folder, quick) / CELLS / f"{name}.json"


def keep(folder: Path, quick: bool, cell: KeptCell) -> Path:
    path = cell_file(folder, quick, cell.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, json.dumps(asdict(cell), indent=1, ensure_ascii=False) + "\n")
    return path


def read_cell(path: Path, name: str, asks: Mapping[str, Any]) -> KeptCell:
    """Refuses a file that is spoiled, or that holds something else than the study asks for."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        cell = KeptCell(**data)
        whole = cell.status in ("finished", "diverged") and isinstance(cell.figures, dict)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is no kept cell ({error}): delete it to run it again") from None
    if not whole or cell.name != name:
        raise ValueError(f"{path} is not the cell {name}: delete it to run it again")
    asked, wanted = (clipping_in_work(one, tell=False) for one in (cell.asked, asks))
    if json.dumps(asked, sort_keys=True) != json.dumps(wanted, sort_keys=True):
        keys = sorted(k for k in {*asked, *wanted} if asked.get(k) != wanted.get(k))
        raise ValueError(
            f"{path} was made of another experiment, which differs in {', '.join(keys)}: delete it "
            "to run it again"
        )
    return cell
