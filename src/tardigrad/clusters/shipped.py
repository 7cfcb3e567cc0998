"""Traces of real jobs that come with the package."""

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("traces")


class ShippedTrace(NamedTuple):
    """What it is, whose it is, and under which licence."""

    file: str
    what: str
    source: str
    licence: str

    @property
    def path(self) -> Path:
        return FOLDER / self.file


TRACES = {
    "alibaba_job1": ShippedTrace(
        "alibaba_job1.csv",
        "10 workers on a shared GPU cluster; one becomes a straggler in the middle (no unit)",
        "Alibaba Cluster Trace Program, cluster-trace-gpu-v2020/mini-batch-time",
        "CC BY 4.0",
    ),
    "bytedance_se": ShippedTrace(
        "bytedance_se.csv",
        "32 data-parallel ranks of a large language model: compute time of 43 sampled steps",
        "ByteDance-Seed/StragglerAnalysis",
        "Apache-2.0",
    ),
}


def trace_file(path: str) -> Path:
    """Where a trace is: one that comes with the package, by its name, or any file."""
    return TRACES[path].path if path in TRACES else Path(path)
