"""Benchmarks: each beside what it is measured against, in one interleaved run."""

from collections.abc import Callable

from tardigrad.bench.growth import bench_growth
from tardigrad.bench.models import bench_models
from tardigrad.bench.plan import bench_plan
from tardigrad.bench.ray import bench_ray
from tardigrad.bench.rules import bench_rules
from tardigrad.bench.schedule import bench_schedule
from tardigrad.bench.simulation import bench_simulation
from tardigrad.bench.stack import bench_stack
from tardigrad.bench.transport import bench_transport
from tardigrad.core.result_table import ResultTable

BENCHMARKS: dict[str, Callable[..., ResultTable]] = {
    "schedule": bench_schedule,
    "simulation": bench_simulation,
    "rules": bench_rules,
    "growth": bench_growth,
    "models": bench_models,
    "stack": bench_stack,
    "plan": bench_plan,
    "ray": bench_ray,
    "transport": bench_transport,
}
"""By name; the docstring's first line says what is measured. What runs tensors on a device of
choice takes `device`; what has a shorter form takes `quick`."""

__all__ = ["BENCHMARKS"]
