"""Steps that are mostly alike, a few of which take very long."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import not_negative, positive, require
from tardigrad.core.keys import Bits, bits, gamma, key, keys, normal, uniform


@dataclass(frozen=True)
class Stragglers(TimedCluster):
    """A lognormal body; now and then a step takes a Pareto-distributed time more.

    step = body + late · extra, with body lognormal (mean_s, variation),
    P(late at step s) = min(1, straggle · B_s), P(extra > t) = (least_extra_s / t)^exponent.
    B_s ~ Γ(1/burst², burst²), mean 1, is common to all workers' s-th steps: stragglers come
    together, as they do where a shared switch or server is the cause. burst = 0: independently.

    The defaults are fitted to what the backup-workers paper publishes of 100 machines (Section
    3.1): 80% of the 98th gradients and 30% of the 100th within 2 s, mean times to collect k
    gradients from 1.4 s to 1.8 s up to the last few, 310 s the longest of about 76,000 iterations.
    The first two cannot both hold for independent stragglers (30% none late would make it 88%
    at most two late): that asks for burst = 0.577, Γ of shape 3.

    Args:
        mean_s: the mean of the body.
        variation: standard deviation over mean of the body.
        straggle: how likely a step is late, on average.
        least_extra_s: what a late step takes more, at least.
        exponent: of the tail of that extra time.
        burst: how strongly stragglers come together; 0: independently.
    """

    workers: int
    mean_s: float = 1.58
    variation: float = 0.047
    straggle: float = 0.0145
    least_extra_s: float = 0.6
    exponent: float = 1.9
    burst: float = 0.577

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("mean_s", self.mean_s)
        positive("variation", self.variation)
        positive("least_extra_s", self.least_extra_s)
        positive("exponent", self.exponent)
        not_negative("straggle", self.straggle)
        not_negative("burst", self.burst)
        require(self.straggle <= 1, f"straggle is a probability, got {self.straggle}")

    def realise(self, seed: int) -> StepTimes:
        return _StragglerTimes(self, key(seed, "burst"), keys(seed, "step", self.workers))


class _StragglerTimes(StepTimes):
    def __init__(self, model: Stragglers, common: int, streams: Bits) -> None:
        self.model = model
        self.common = common
        self.streams = streams
        self.sigma = math.sqrt(math.log1p(model.variation**2))

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        model = self.model
        own = bits(self.streams[np.asarray(workers)], steps)  # a stream for each single step
        body = model.mean_s * np.exp(self.sigma * normal(own, 0) - self.sigma**2 / 2)
        chance = np.asarray(model.straggle)
        if model.burst:
            shape = model.burst**-2
            chance = chance * gamma(self.common, steps, shape) / shape
        extra = model.least_extra_s * uniform(own, 1) ** (-1 / model.exponent)
        return np.asarray(body + extra * (uniform(own, 2) < chance), dtype=np.float64)
