"""Experiments as data: the spec, and running what it says."""

from tardigrad.experiment.comparison import Entry, Outcome, entries, outcomes
from tardigrad.experiment.loading import load_run
from tardigrad.experiment.real import compare_real, real_beside_simulated, run_on_ray
from tardigrad.experiment.replaying import replay
from tardigrad.experiment.run import run
from tardigrad.experiment.spec import Spec, changed, differences, read_toml
from tardigrad.experiment.sweep import Point, default_jobs, points, sweep

__all__ = [
    "Entry",
    "Outcome",
    "Point",
    "Spec",
    "changed",
    "compare_real",
    "default_jobs",
    "differences",
    "entries",
    "load_run",
    "outcomes",
    "points",
    "read_toml",
    "real_beside_simulated",
    "replay",
    "run",
    "run_on_ray",
    "sweep",
]
