"""Experiments as data: the spec, and running what it says."""

from tardigrad.experiment.comparison import Entry, Outcome, entries, outcomes
from tardigrad.experiment.real import compare_real, real_beside_simulated, replay, run_on_ray
from tardigrad.experiment.run import run, saved_updates
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
    "outcomes",
    "points",
    "read_toml",
    "real_beside_simulated",
    "replay",
    "run",
    "run_on_ray",
    "saved_updates",
    "sweep",
]
