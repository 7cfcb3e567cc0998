"""Step times that never vary."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import positive, require


@dataclass(frozen=True)
class Constant(TimedCluster):
    """Every step takes the same time: one for all workers, or one for each.

    Workers of equal speed then arrive together; they are served in order of their numbers.

    Args:
        step_s: seconds of a step; a list has one for each worker.
    """

    workers: int
    step_s: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.step_s, tuple):
            positive("step_s", self.step_s)
            return
        require(
            len(self.step_s) == self.workers,
            f"step_s has {len(self.step_s)} entries for {self.workers} workers: "
            "give one number, or one per worker",
        )
        for i, step_s in enumerate(self.step_s):
            positive(f"step_s[{i}]", step_s)

    def realise(self, seed: int) -> StepTimes:
        own_s = np.broadcast_to(np.asarray(self.step_s, dtype=np.float64), (self.workers,))
        return _ConstantTimes(own_s)


class _ConstantTimes(StepTimes):
    def __init__(self, own_s: Floats) -> None:
        self.own_s = own_s

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        who, _ = np.broadcast_arrays(np.asarray(workers), np.asarray(steps))
        return np.asarray(self.own_s[who], dtype=np.float64)
