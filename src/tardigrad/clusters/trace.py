"""Step times measured on a real cluster."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.clusters.logs import StepLog, read_step_log
from tardigrad.clusters.shipped import trace_file
from tardigrad.core.arrays import Floats, Ints
from tardigrad.core.checks import one_of
from tardigrad.core.keys import Bits, bits, keys

Order = Literal["resampled", "recorded"]


@dataclass(frozen=True)
class Trace(TimedCluster):
    """Measured step times from a log, resampled per worker or in the order recorded.

    The log is a CSV file with the columns worker and step_s (workers numbered from 0 without
    holes, each with at least one time), with the column step_s alone, or anything else that
    `read_step_log` understands. Worker i of the cluster takes the times of worker i mod n of the n
    in the log, so that a small trace serves a larger cluster.

    Args:
        path: of the log, from the working folder; or a name of `tardigrad list traces`.
        workers: how many; 0 takes as many as the log names.
        order: "resampled": each step is one of the worker's times, all equally likely, so that
            every seed is another run. "recorded": as they came, and from the beginning again
            after the last, whatever the seed; slow phases, and steps that were slow for
            everybody, stay what they were. Copies of a worker start at other steps of it, evenly
            spread.
    """

    path: str
    workers: int = 0
    order: Order = "resampled"

    def __post_init__(self) -> None:
        one_of("order", self.order, ("resampled", "recorded"))
        measured = self.log()
        if self.workers == 0:
            object.__setattr__(self, "workers", measured.workers)
        super().__post_init__()

    def log(self) -> StepLog:
        """What was measured."""
        return read_step_log(trace_file(self.path))

    def realise(self, seed: int) -> StepTimes:
        measured = self.log().times_s
        if self.order == "recorded":
            return _Recorded(measured, self.workers)
        return _Resampled(measured, keys(seed, "step", self.workers))


class _TraceTimes(StepTimes):
    """All times one after another, and where those of each worker begin."""

    def __init__(self, measured: tuple[Floats, ...], workers: int) -> None:
        self.flat = np.concatenate(measured)
        sizes = np.array([len(times) for times in measured])
        source = np.arange(workers) % len(measured)
        self.size = sizes[source]
        self.first = (np.cumsum(sizes) - sizes)[source]

    def at(self, workers: Ints, within: Ints) -> Floats:
        return np.asarray(self.flat[self.first[workers] + within], dtype=np.float64)


class _Resampled(_TraceTimes):
    def __init__(self, measured: tuple[Floats, ...], streams: Bits) -> None:
        super().__init__(measured, len(streams))
        self.streams = streams

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        who = np.asarray(workers)
        high = bits(self.streams[who], steps) >> np.uint64(32)
        within = (high * self.size[who].astype(np.uint64)) >> np.uint64(32)
        return self.at(who, within.astype(np.int64))


class _Recorded(_TraceTimes):
    def __init__(self, measured: tuple[Floats, ...], workers: int) -> None:
        super().__init__(measured, workers)
        copies = -(-workers // len(measured))
        self.begins = (np.arange(workers) // len(measured)) * self.size // copies

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        who = np.asarray(workers)
        return self.at(who, (self.begins[who] + np.asarray(steps)) % self.size[who])
