"""Step times measured on a real cluster."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.csv_columns import read_columns
from tardigrad.core.keys import Bits, bits, keys


@dataclass(frozen=True)
class Trace(TimedCluster):
    """Measured step times from a CSV file, resampled per worker.

    The file has a header and either the columns worker and step_s (workers numbered from 0 without
    holes, each with at least one time) or the column step_s alone; other columns are ignored. Each
    step of worker i is one of the times measured for it, all equally likely: worker i of the
    cluster takes those of worker i mod n of the n in the file, so that a small trace serves a
    larger cluster. What is lost is the order in which the times came (**choice**).

    Args:
        path: of the CSV file, from the working folder.
        workers: how many; 0 takes as many as the file names.
    """

    path: str
    workers: int = 0

    def __post_init__(self) -> None:
        measured = read_trace(self.path)
        if self.workers == 0:
            object.__setattr__(self, "workers", len(measured))
        super().__post_init__()

    def realise(self, seed: int) -> StepTimes:
        return _TraceTimes(read_trace(self.path), keys(seed, "step", self.workers))


class _TraceTimes(StepTimes):
    def __init__(self, measured: list[Floats], streams: Bits) -> None:
        self.flat = np.concatenate(measured)
        sizes = np.array([len(times) for times in measured])
        source = np.arange(len(streams)) % len(measured)
        self.size = sizes[source].astype(np.uint64)
        self.first = (np.cumsum(sizes) - sizes)[source]
        self.streams = streams

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        who = np.asarray(workers)
        high = bits(self.streams[who], steps) >> np.uint64(32)
        within = ((high * self.size[who]) >> np.uint64(32)).astype(np.int64)
        return np.asarray(self.flat[self.first[who] + within], dtype=np.float64)


def read_trace(path: str | Path) -> list[Floats]:
    """The measured times of each worker in the file."""
    times: dict[int, list[float]] = {}
    for row in read_columns(path, {"worker": int, "step_s": float}, optional=("worker",)):
        times.setdefault(int(row.get("worker", 0)), []).append(row["step_s"])
    for worker in range(max(times)):
        if worker not in times:
            raise ValueError(
                f"{path} has times for worker {max(times)} but none for worker {worker}: "
                "number the workers from 0 without holes"
            )
    return [np.array(times[worker]) for worker in range(len(times))]
