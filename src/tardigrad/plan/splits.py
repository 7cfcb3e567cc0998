"""How many of the machines should be backups."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tardigrad.checks import count
from tardigrad.clusters import TimedCluster
from tardigrad.keys import Floats
from tardigrad.plan.needed import Needed
from tardigrad.policies import Backup, Sync
from tardigrad.schedule import schedule
from tardigrad.schedule.analysis import collect_times_s


@dataclass(frozen=True)
class Split:
    """N workers + b backups: what an update takes and how many are needed.

    Args:
        update_s: mean time per update; by order statistics, the mean time to the N-th gradient of
            all machines starting together; by simulation, that of the Backup policy, whose
            stragglers are still busy with the update before.
        total_s: update_s × updates.
    """

    workers: int
    backups: int
    update_s: float
    updates: float

    @property
    def total_s(self) -> float:
        return self.update_s * self.updates


def collect_times(cluster: TimedCluster, rounds: int = 2000, seed: int = 0) -> Floats:
    """Time to the k-th gradient with all workers starting together: (rounds, workers)."""
    return collect_times_s(schedule(Sync(), cluster, rounds, seed))


def estimated_splits(times_s: Floats, needed: Needed, least: int | None = None) -> list[Split]:
    """Every split from `least` workers (half of the machines) up, by order statistics."""
    machines = times_s.shape[1]
    least = least or max(1, machines // 2)
    count("least", least)
    means = np.nanmean(times_s, axis=0)
    return [
        Split(n, machines - n, float(means[n - 1]), needed(n)) for n in range(least, machines + 1)
    ]


def simulated_splits(
    cluster: TimedCluster,
    needed: Needed,
    backups: Iterable[int],
    rounds: int = 500,
    seed: int = 0,
) -> list[Split]:
    """The same by running the policy itself."""
    out = []
    for b in backups:
        policy = Backup(backups=b) if b else Sync()
        made = schedule(policy, cluster, rounds, seed)
        n = cluster.workers - b
        out.append(Split(n, b, made.end_time / made.updates, needed(n)))
    return out


def splits_near(
    cluster: TimedCluster, needed: Needed, backups: int, rounds: int = 500, seed: int = 0
) -> list[Split]:
    """No backups, and those around `backups`, on as far as more backups are still better."""
    most = cluster.workers // 2
    tried = sorted({0, *range(max(0, backups - 2), min(backups + 2, most) + 1)})
    out = simulated_splits(cluster, needed, tried, rounds, seed)
    while out[-1].backups < most and best(out).backups >= out[-1].backups - 1:
        out += simulated_splits(cluster, needed, [out[-1].backups + 1], rounds, seed)
    return out


def best(splits: Iterable[Split]) -> Split:
    return min(splits, key=lambda split: split.total_s)
