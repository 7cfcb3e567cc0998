"""Experiments as data: the spec, and running what it says."""

from tardigrad.experiment.cells import Outcome, RunCell
from tardigrad.experiment.comparison import Entry, compare, compare_entries, entries
from tardigrad.experiment.fidelity import compare_real_all
from tardigrad.experiment.loading import load_run
from tardigrad.experiment.real import compare_real, real_beside_simulated, run_on_ray
from tardigrad.experiment.replaying import replay
from tardigrad.experiment.run import run
from tardigrad.experiment.side_by_side import CellProgress, execute_cells
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.spec_data import changed, differences, read_toml
from tardigrad.experiment.sweep import Point, points, sweep

__all__ = [
    "CellProgress",
    "Entry",
    "Outcome",
    "Point",
    "RunCell",
    "Spec",
    "changed",
    "compare",
    "compare_entries",
    "compare_real",
    "compare_real_all",
    "differences",
    "entries",
    "execute_cells",
    "load_run",
    "points",
    "read_toml",
    "real_beside_simulated",
    "replay",
    "run",
    "run_on_ray",
    "sweep",
]
