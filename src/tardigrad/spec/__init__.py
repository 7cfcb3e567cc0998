"""Experiments as data: the spec, and running what it says."""

from tardigrad.spec.comparison import Entry, Outcome, entries, outcomes
from tardigrad.spec.real import compare_real, replay_run, run_on_ray, side_by_side
from tardigrad.spec.run import run, saved_updates
from tardigrad.spec.spec import Spec, changed, differences, read_toml
from tardigrad.spec.sweep import Point, default_jobs, points, sweep

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
    "replay_run",
    "run",
    "run_on_ray",
    "saved_updates",
    "side_by_side",
    "sweep",
]
