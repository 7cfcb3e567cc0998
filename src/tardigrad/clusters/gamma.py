"""The gamma model of worker times (Ali et al. 2000; Gap-Aware paper, Alg. 12 and 13)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import positive
from tardigrad.core.keys import gamma, key, keys


@dataclass(frozen=True)
class Gamma(TimedCluster):
    """Step times from gamma distributions: machines alike, or of different speeds.

    homogeneous (Alg. 12): q ~ Γ(1/V_task², μ V_task²) once; each step ~ Γ(1/V_mach², q V_mach²).
    heterogeneous (Alg. 13): p_j ~ Γ(1/V_mach², μ V_mach²) per worker; its steps
    ~ Γ(1/V_task², p_j V_task²).

    Args:
        heterogeneous: whether machines differ in speed (Alg. 13).
        mean_s: μ. The paper's is the batch size in units of time: 128 for a batch of 128.
        task_variation: V_task = 0.1.
        machine_variation: V_mach; None is 0.1 for equal machines and 0.6 for different ones.

    Published check: P(step > 1.25 × mean) is 1% homogeneous (against the realised q) and 27.9%
    heterogeneous.
    """

    workers: int
    heterogeneous: bool = False
    mean_s: float = 128.0
    task_variation: float = 0.1
    machine_variation: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("mean_s", self.mean_s)
        positive("task_variation", self.task_variation)
        if self.machine_variation is not None:
            positive("machine_variation", self.machine_variation)

    def realise(self, seed: int) -> StepTimes:
        machine = self.machine_variation or (0.6 if self.heterogeneous else 0.1)
        if self.heterogeneous:
            speeds = keys(seed, "machine", self.workers)
            means = _gamma_of_mean(speeds, 0, machine) * self.mean_s
            return _GammaTimes(means, self.task_variation, keys(seed, "step", self.workers))
        realised = _gamma_of_mean(key(seed, "machine"), 0, self.task_variation) * self.mean_s
        means = np.broadcast_to(realised, (self.workers,))
        return _GammaTimes(means, machine, keys(seed, "step", self.workers))


class _GammaTimes(StepTimes):
    def __init__(self, means: Floats, variation: float, streams: npt.NDArray[np.uint64]) -> None:
        self.means = means
        self.variation = variation
        self.streams = streams

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        who = np.asarray(workers)
        drawn = _gamma_of_mean(self.streams[who], steps, self.variation)
        return np.asarray(self.means[who] * drawn, dtype=np.float64)


def _gamma_of_mean(
    streams: int | npt.NDArray[np.uint64], position: npt.ArrayLike, variation: float
) -> Floats:
    """Gamma draws of mean 1 and coefficient of variation `variation`."""
    shape = 1.0 / variation**2
    return gamma(streams, position, shape) / shape
