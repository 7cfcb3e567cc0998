"""Benchmarks: each beside what it is measured against, in one interleaved run."""

from collections.abc import Callable

from tardigrad.bench.schedule import bench_schedule
from tardigrad.findings import Findings

BENCHMARKS: dict[str, Callable[[], Findings]] = {"schedule": bench_schedule}
"""By name; the docstring's first line says what is measured."""

__all__ = ["BENCHMARKS"]
