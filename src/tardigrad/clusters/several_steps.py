"""A cluster whose workers take several steps for each thing that they push."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import count

DRAWS = 1 << 18
"""Step times that are drawn at once, or those of one row."""


@dataclass(frozen=True)
class SeveralSteps(TimedCluster):
    """Step s takes as long as the cluster's steps s·each to s·each + each − 1 together."""

    workers: int
    cluster: TimedCluster
    each: int

    def __post_init__(self) -> None:
        super().__post_init__()
        count("each", self.each)

    @classmethod
    def of(cls, cluster: TimedCluster, each: int) -> TimedCluster:
        """The cluster itself where a step is one."""
        if each == 1:
            return cluster
        network, absences = cluster.network, cluster.absences
        return cls(cluster.workers, cluster, each, network=network, absences=absences)

    def realise(self, seed: int) -> StepTimes:
        return _Sums(self.cluster.realise(seed), self.each)

    def sized(self, workers: int) -> Self:
        return replace(self, workers=workers, cluster=self.cluster.sized(workers))


class _Sums(StepTimes):
    """Drawn a slice of rows at a time: all rows' steps at once took gigabytes."""

    def __init__(self, times: StepTimes, each: int) -> None:
        self._times, self._each = times, np.arange(each)

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        whose, which = np.broadcast_arrays(workers, steps)
        whose, first = whose.reshape(-1, 1), which.reshape(-1, 1) * len(self._each)
        took = np.empty(len(whose))
        rows = max(1, DRAWS // len(self._each))
        for at in range(0, len(whose), rows):
            part = slice(at, at + rows)
            drawn = self._times.step_s(whose[part], first[part] + self._each)
            took[part] = drawn.sum(axis=-1)
        return took.reshape(which.shape)
