"""What if nobody were slower than the others, and what if workers failed."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tardigrad.clusters import Absence, StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import not_negative, positive, require
from tardigrad.core.keys import exponential, keys
from tardigrad.planning.measure import Setting
from tardigrad.policies import Policy
from tardigrad.scheduling import schedule
from tardigrad.scheduling.analysis import Summary

FAILURES = 100
"""So many are simulated at least."""
MOST_GRADIENTS = 60_000
"""And so many gradients at most; where failures are rarer than that, goodput is estimated."""


@dataclass(frozen=True)
class WithoutStragglers(TimedCluster):
    """A cluster in which every worker's step takes the mean over all workers of that step.

    The work is the same and nobody waits for anybody: what training would be without stragglers
    (the T_ideal of what-if analyses). Network and absences are those of the cluster it is of.
    """

    of: TimedCluster
    workers: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", self.workers or self.of.workers)
        object.__setattr__(self, "network", self.of.network)
        object.__setattr__(self, "absences", self.of.absences)
        super().__post_init__()

    def sized(self, workers: int) -> "WithoutStragglers":
        return WithoutStragglers(self.of.sized(workers))

    def realise(self, seed: int) -> StepTimes:
        return _Even(self.of.realise(seed), self.of.workers)


class _Even(StepTimes):
    def __init__(self, times: StepTimes, workers: int) -> None:
        self.times = times
        self.everyone = np.arange(workers)[:, None]

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        who, which = np.broadcast_arrays(np.asarray(workers), np.asarray(steps))
        asked, back = np.unique(which, return_inverse=True)
        means = self.times.step_s(self.everyone, asked[None, :]).mean(axis=0)
        return np.asarray(means[back].reshape(who.shape), dtype=np.float64)


@dataclass(frozen=True)
class Failures:
    """Each worker fails after an exponential time and is replaced.

    Args:
        mtbf_s: mean time between failures of one worker.
        repair_s: how long it takes until another is in its place.
    """

    mtbf_s: float
    repair_s: float = 300.0

    def __post_init__(self) -> None:
        positive("mtbf", self.mtbf_s)
        not_negative("repair", self.repair_s)

    def cluster(self, cluster: TimedCluster, until_s: float, seed: int) -> TimedCluster:
        """The cluster with its workers' absences up to this time."""
        require(not cluster.absences, "--mtbf draws absences, and the cluster has its own: use one")
        streams = keys(seed, "failure", cluster.workers)
        absences = []
        for worker in range(cluster.workers):
            at_s, number = 0.0, 0
            while True:
                at_s += self.mtbf_s * float(exponential(streams[worker], number))
                if at_s >= until_s:
                    break
                back_s = at_s + max(self.repair_s, 1e-9 * at_s)
                absences.append(Absence(worker, at_s, back_s))
                at_s, number = back_s, number + 1
        return replace(cluster, absences=tuple(absences))


class Goodput(NamedTuple):
    """Gradients per second with failures, over those without."""

    share: float
    failures: int
    """How many were simulated; 0: it was estimated."""


def goodput(setting: Setting, policy: Policy, failures: Failures) -> Goodput:
    """Simulated where `FAILURES` of them happen within `MOST_GRADIENTS`.

    Else (mtbf − s/2) / (mtbf + repair): a failure takes the repair and, on average, half of the
    step s under way. Workers that are gone are not waited for, by any policy.
    """
    usual = setting.measure(policy).summary
    steps_s = _mean_step_s(setting.cluster, setting.seed)
    require(
        failures.mtbf_s > steps_s,
        f"--mtbf of {failures.mtbf_s:g} s is shorter than a mean step of {steps_s:.4g} s: no "
        "worker would ever finish one",
    )
    span_s = FAILURES * failures.mtbf_s / setting.cluster.workers
    if usual.gradients_per_s * span_s > MOST_GRADIENTS:
        whole = failures.mtbf_s + failures.repair_s
        return Goodput((failures.mtbf_s - steps_s / 2) / whole, 0)
    updates = max(20, math.ceil(usual.updates_per_s * span_s))
    failing = failures.cluster(setting.cluster, 4 * span_s, setting.seed)
    did = Summary.of(schedule(policy, failing, updates, setting.seed, setting.shards))
    happened = sum(absence.leaves_s < did.lasted_s for absence in failing.absences)
    return Goodput(min(1.0, did.gradients_per_s / usual.gradients_per_s), happened)


def _mean_step_s(cluster: TimedCluster, seed: int) -> float:
    everyone = np.arange(cluster.workers)[:, None]
    return float(cluster.realise(seed).step_s(everyone, np.arange(50)[None, :]).mean())
