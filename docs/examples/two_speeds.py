"""A cluster of one's own: the first workers are slow, and nothing is drawn."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import tardigrad as tg


@dataclass(frozen=True)
class TwoSpeeds(tg.TimedCluster):
    """Every step takes 1 s; those of the first `slow` workers take `factor` s."""

    workers: int
    slow: int = 1
    factor: float = 3.0

    def realise(self, seed: int) -> tg.StepTimes:
        return TwoSpeedsTimes(self.slow, self.factor)


@dataclass(frozen=True)
class TwoSpeedsTimes(tg.StepTimes):
    slow: int
    factor: float

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> npt.NDArray[np.float64]:
        who, _ = np.broadcast_arrays(np.asarray(workers), np.asarray(steps))
        return np.where(who < self.slow, self.factor, 1.0)
