"""Benchmarks: each beside what it is measured against, in one interleaved run."""

from collections.abc import Callable

from tardigrad.bench.schedule import bench_schedule
from tardigrad.bench.simulation import bench_simulation
from tardigrad.findings import Findings

BENCHMARKS: dict[str, Callable[..., Findings]] = {
    "schedule": bench_schedule,
    "simulation": bench_simulation,
}
"""By name; the docstring's first line says what is measured. What runs tensors takes `device`."""

__all__ = ["BENCHMARKS"]
