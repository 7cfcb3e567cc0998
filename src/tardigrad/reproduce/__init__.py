"""Published figures that take training, one a file; those of schedules alone are in plan."""

from collections.abc import Callable
from pathlib import Path

from tardigrad.findings import Findings
from tardigrad.reproduce.b_fasgd import b_fasgd

TRAININGS: dict[str, Callable[[Path], Findings]] = {"b-fasgd-fig3": b_fasgd}

__all__ = ["TRAININGS"]
