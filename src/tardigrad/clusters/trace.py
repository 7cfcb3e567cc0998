"""Step times measured on a real cluster."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.keys import Bits, Floats, bits, keys


@dataclass(frozen=True)
class Trace(TimedCluster):
    """Measured step times from a CSV file, resampled per worker.

    The file has a header and either the columns worker and step_s (workers numbered from 0 without
    holes, each with at least one time) or the column step_s alone; other columns are ignored. Each
    step of worker i is one of the times measured for it, all equally likely: worker i of the
    cluster takes those of worker i mod n of the n in the file, so that a small trace serves a
    larger cluster. What is lost is the order in which the times came (**choice**).

    Args:
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
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = list(enumerate(csv.reader(file), start=1))
    except FileNotFoundError:
        raise ValueError(f"there is no trace file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as a CSV file: {error}") from error
    header = [name.strip() for name in lines[0][1]] if lines else []
    if "step_s" not in header:
        raise ValueError(
            f"{path}, line 1: the header must name the column step_s, and worker where the times "
            f"belong to workers, such as 'worker,step_s'; it says {','.join(header)!r}"
        )
    times: dict[int, list[float]] = {}
    for number, cells in lines[1:]:
        where = f"{path}, line {number}"
        if len(cells) != len(header):
            raise ValueError(
                f"{where}: {len(cells)} values for the {len(header)} columns {','.join(header)}"
            )
        named = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        worker = _worker(named["worker"], where) if "worker" in header else 0
        times.setdefault(worker, []).append(_time(named["step_s"], where))
    if not times:
        raise ValueError(f"{path} has a header and no times")
    for worker in range(max(times)):
        if worker not in times:
            raise ValueError(
                f"{path} has times for worker {max(times)} but none for worker {worker}: "
                "number the workers from 0 without holes"
            )
    return [np.array(times[worker]) for worker in range(len(times))]


def _worker(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{where}: worker must be a whole number from 0, got {text!r}")
    return int(text)


def _time(text: str, where: str) -> float:
    if not text:
        raise ValueError(
            f"{where}: step_s is missing; give the measured time or leave the line out"
        )
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{where}: step_s must be a number of seconds, got {text!r}") from None
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{where}: step_s must be finite and greater than 0, got {text!r}")
    return value
