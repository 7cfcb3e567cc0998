"""Published figures that take training, one a file; those of schedules alone are in plan."""

from collections.abc import Callable

from tardigrad.core.result_table import ResultTable
from tardigrad.reproduce.b_fasgd import b_fasgd
from tardigrad.reproduce.fasgd import fasgd_fig1, fasgd_fig2

TRAININGS: dict[str, Callable[..., ResultTable]] = {
    "fasgd-fig1": fasgd_fig1,
    "fasgd-fig2": fasgd_fig2,
    "b-fasgd-fig3": b_fasgd,
}

__all__ = ["TRAININGS"]
