"""A cluster whose workers take several steps for each thing that they push."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import count


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
    def __init__(self, times: StepTimes, each: int) -> None:
        self._times, self._each = times, np.arange(each)

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        first = np.asarray(steps)[..., None] * len(self._each)
        took = self._times.step_s(np.asarray(workers)[..., None], first + self._each)
        return np.asarray(took.sum(axis=-1), dtype=np.float64)
