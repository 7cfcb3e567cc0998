"""Memoryless step times."""

from dataclasses import dataclass

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.clusters.drawn import DrawnTimes
from tardigrad.core.checks import positive
from tardigrad.core.keys import exponential


@dataclass(frozen=True)
class Exponential(TimedCluster):
    """Step times from an exponential distribution: P(step > t) = exp(−t/mean_s).

    Args:
        mean_s: the mean step time.
    """

    workers: int
    mean_s: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("mean_s", self.mean_s)

    def realise(self, seed: int) -> StepTimes:
        return DrawnTimes(seed, self.workers, lambda s, at: self.mean_s * exponential(s, at))
