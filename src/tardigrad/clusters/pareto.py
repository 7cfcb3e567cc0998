"""Step times with a tail that falls only as a power."""

from dataclasses import dataclass

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.clusters.drawn import DrawnTimes
from tardigrad.core.checks import positive
from tardigrad.core.keys import uniform


@dataclass(frozen=True)
class Pareto(TimedCluster):
    """Step times from a Pareto distribution: P(step > t) = (least_s / t)^exponent for t > least_s.

    The mean is infinite for exponent ≤ 1, the variance for exponent ≤ 2.

    Args:
        least_s: the shortest step time.
        exponent: of the tail; the smaller, the heavier.
    """

    workers: int
    least_s: float = 1.0
    exponent: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("least_s", self.least_s)
        positive("exponent", self.exponent)

    def realise(self, seed: int) -> StepTimes:
        return DrawnTimes(
            seed, self.workers, lambda s, at: self.least_s * uniform(s, at) ** (-1 / self.exponent)
        )
