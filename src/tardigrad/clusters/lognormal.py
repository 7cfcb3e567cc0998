"""Step times with a moderate tail."""

import math
from dataclasses import dataclass

import numpy as np

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.clusters.drawn import DrawnTimes
from tardigrad.core.checks import positive
from tardigrad.core.keys import normal


@dataclass(frozen=True)
class LogNormal(TimedCluster):
    """Step times from a lognormal distribution, given its mean and coefficient of variation.

    step = mean_s · exp(σ Z − σ²/2), Z standard normal, σ² = ln(1 + variation²).

    Args:
        mean_s: the mean step time.
        variation: standard deviation over mean.
    """

    workers: int
    mean_s: float = 1.0
    variation: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("mean_s", self.mean_s)
        positive("variation", self.variation)

    def realise(self, seed: int) -> StepTimes:
        sigma = math.sqrt(math.log1p(self.variation**2))
        return DrawnTimes(
            seed,
            self.workers,
            lambda s, at: self.mean_s * np.exp(sigma * normal(s, at) - sigma**2 / 2),
        )
