"""Experiments as data: the spec, and running what it says."""

from tardigrad.spec.comparison import Entry, Outcome, entries, outcomes
from tardigrad.spec.run import run, saved_updates
from tardigrad.spec.spec import Spec, changed, differences, read_toml

__all__ = [
    "Entry",
    "Outcome",
    "Spec",
    "changed",
    "differences",
    "entries",
    "outcomes",
    "read_toml",
    "run",
    "saved_updates",
]
