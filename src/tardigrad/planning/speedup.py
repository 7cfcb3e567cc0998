"""What asynchrony brings: gradients per second against waiting for everybody."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.planning.measure import Setting
from tardigrad.policies import Async, Sync


@dataclass(frozen=True)
class Speedup:
    """Gradients per second of N workers, mean over runs, and the ratio of the two."""

    workers: int
    async_per_s: float
    sync_per_s: float
    ratio: float
    deviation: float
    """Standard deviation of the ratio over runs."""


def speedup(runs: Sequence[Setting]) -> Speedup:
    """Async over Sync in settings that differ in their seed; both share the speeds of the machines
    in each."""
    rates = np.array(
        [[run.measure(p).summary.gradients_per_s for p in (Async(), Sync())] for run in runs]
    )
    ratios = rates[:, 0] / rates[:, 1]
    free, waiting = rates.mean(axis=0).tolist()
    workers = runs[0].cluster.workers
    return Speedup(workers, free, waiting, float(ratios.mean()), float(ratios.std()))


def speedups(
    cluster: TimedCluster, workers: Sequence[int], gradients: int = 100_000, runs: int = 20
) -> list[Speedup]:
    """The same for several numbers of workers, over the seeds from 0 on."""
    return [
        speedup([Setting(cluster.sized(n), gradients=gradients, seed=run) for run in range(runs)])
        for n in workers
    ]


def expected_ratio(cluster: TimedCluster, draws: int = 200, rounds: int = 20) -> float:
    """What the ratio tends to: mean over workers of 1/(own mean step) × mean slowest step.

    From the step times alone, over many draws of the machines' speeds, and without the start when
    all asynchronous workers are equally far.
    """
    workers = np.arange(cluster.workers)[:, None]
    ratios = []
    for seed in range(draws):
        steps_s = cluster.realise(seed).step_s(workers, np.arange(rounds)[None, :])
        ratios.append((1 / steps_s.mean(axis=1)).mean() * steps_s.max(axis=0).mean())
    return float(np.mean(ratios))
