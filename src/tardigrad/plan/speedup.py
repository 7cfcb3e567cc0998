"""What asynchrony brings: gradients per second against waiting for everybody."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tardigrad.checks import count
from tardigrad.clusters import TimedCluster
from tardigrad.policies import Async, Policy, Sync
from tardigrad.schedule import schedule


@dataclass(frozen=True)
class Speedup:
    """Gradients per second of N workers, mean over runs, and the ratio of the two."""

    workers: int
    async_per_s: float
    sync_per_s: float
    ratio: float
    deviation: float
    """Standard deviation of the ratio over runs."""


def speedups(
    cluster: TimedCluster,
    workers: Sequence[int],
    gradients: int = 100_000,
    runs: int = 20,
    seed: int = 0,
) -> list[Speedup]:
    """Async over Sync, both until about `gradients` gradients are applied, for each number of
    workers; a run of both shares its seed, and so the speeds of the machines."""
    count("gradients", gradients)
    count("runs", runs)
    out = []
    for n in workers:
        sized = cluster.sized(n)
        rates = np.array(
            [
                (
                    _per_s(Async(), sized, gradients, run),
                    _per_s(Sync(), sized, max(1, gradients // n), run),
                )
                for run in range(seed, seed + runs)
            ]
        )
        ratios = rates[:, 0] / rates[:, 1]
        free, waiting = rates.mean(axis=0)
        out.append(
            Speedup(n, float(free), float(waiting), float(ratios.mean()), float(ratios.std()))
        )
    return out


def _per_s(policy: Policy, cluster: TimedCluster, updates: int, seed: int) -> float:
    made = schedule(policy, cluster, updates, seed)
    return len(made.group_rows) / made.end_time


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
