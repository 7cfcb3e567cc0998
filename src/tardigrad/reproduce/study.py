"""A published result as a study: cells that are run and kept one by one, a table and a figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.result_table import ResultTable
from tardigrad.experiment import Spec
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.kept_cells import FoundCells

Measure = Callable[..., Mapping[str, Any]]
"""A folder for pictures and arguments as plain data in, figures as plain data out: what is not one
run of one spec."""


@dataclass(frozen=True)
class StudyCell:
    """One run, or one measurement, that is kept under a name of its own."""

    name: str
    """Such as "N=32/GA/seed=0"."""
    asks: Mapping[str, Plain]
    """What a spec says, or the arguments of `measure`. A kept cell that was asked for something
    else is refused, so nothing of the machine stands here."""
    measure: Measure | None = None

    def spec(self, on_device: Mapping[str, Plain]) -> Spec:
        """To be run; `on_device` goes into its task."""
        require(self.measure is None, f"{self.name} is no run of a spec")
        task = {**self.asks["task"], **on_device}
        return Spec.of({**self.asks, "task": task})


@dataclass(frozen=True)
class Study:
    """Cells, and what is made of those that are there."""

    name: str
    about: str
    """A line: what is set beside the paper."""
    full: Callable[[], Sequence[StudyCell]]
    """The paper's own setting, most telling cells first."""
    quick: Callable[[], Sequence[StudyCell]]
    """A small form, minutes on a CPU, that shows the direction; empty where there is none."""
    table: Callable[[FoundCells], ResultTable]
    draw: Callable[[FoundCells, Path], Sequence[Path]] | None = None
    """Writes figures into a folder; only called where some cell is there."""
    gpu: Mapping[str, Plain] | None = None
    """What tasks take on a GPU beside the device; None: the study has no use for one."""
    gpu_wanted: bool = field(default=False)
    """Whether the whole takes hours without one."""

    def cells(self, quick: bool) -> list[StudyCell]:
        made = list(self.quick() if quick else self.full())
        require(bool(made), f"{self.name} has no quick form: leave out --quick")
        names = [cell.name for cell in made]
        assert len(set(names)) == len(names), f"{self.name} names two cells alike"
        return made

    def on_device(self, device: str) -> dict[str, Plain]:
        if device == "cpu":
            return {}
        require(self.gpu is not None, f"{self.name} runs on the CPU alone: leave out --device")
        return {"device": device, **(self.gpu or {})}

    def command(self, quick: bool) -> str:
        words = ["tardigrad reproduce", self.name]
        words += ["--quick"] if quick else ["--device cuda"] if self.gpu_wanted else []
        return " ".join(words)
