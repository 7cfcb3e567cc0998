"""How many of the machines should be backups."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tardigrad.core.arrays import Floats
from tardigrad.core.checks import count
from tardigrad.planning.measure import Setting
from tardigrad.planning.needed import Needed
from tardigrad.policies import Backup, Policy, Sync


@dataclass(frozen=True)
class BackupSplit:
    """N workers + b backups: what an update takes and how many are needed.

    Args:
        update_s: mean time per update; by order statistics, the mean time to the N-th gradient of
            all machines starting together; by simulation, that of the Backup policy, whose
            stragglers are still busy with the update before.
        gradients: mean number of gradients per update; N, or fewer where workers are absent.
        updates: how many are needed with so many gradients each.
    """

    workers: int
    backups: int
    update_s: float
    gradients: float
    updates: float

    @property
    def total_s(self) -> float:
        return self.update_s * self.updates

    @property
    def policy(self) -> Policy:
        return Backup(self.backups) if self.backups else Sync()


def estimated_splits(
    times_s: Floats, needed: Needed, least: int | None = None
) -> list[BackupSplit]:
    """Every split from `least` workers (half of the machines) up, by order statistics.

    As under `Backup`, a version of which fewer gradients come, because workers are absent, ends
    without the last b of these.
    """
    machines = times_s.shape[1]
    least = least or max(1, machines // 2)
    count("least", least)
    came = np.isfinite(times_s).sum(axis=1)
    times_s, came = times_s[came > 0], came[came > 0]
    out = []
    for n in range(least, machines + 1):
        quota = np.maximum(1, came - (machines - n))
        update_s = float(times_s[np.arange(len(quota)), quota - 1].mean())
        gradients = float(quota.mean())
        out.append(BackupSplit(n, machines - n, update_s, gradients, needed(gradients)))
    return out


def simulated_splits(setting: Setting, needed: Needed, backups: Iterable[int]) -> list[BackupSplit]:
    """The same by running the policy itself."""
    out = []
    for b in backups:
        n = setting.cluster.workers - b
        did = setting.measure(Backup(b) if b else Sync()).summary
        gradients = did.gradients_per_update
        out.append(BackupSplit(n, b, did.update_s, gradients, needed(gradients)))
    return out


def splits_near(setting: Setting, needed: Needed, backups: int) -> list[BackupSplit]:
    """No backups, and those around `backups`, on as far as more backups are still better.

    Every number of them up to 199 machines; above, in steps of a hundredth of the machines.
    """
    most = setting.cluster.workers // 2
    step = max(1, setting.cluster.workers // 100)
    around = (backups + i * step for i in range(-2, 3))
    out = simulated_splits(setting, needed, sorted({0, *(b for b in around if 0 <= b <= most)}))
    while out[-1].backups + step <= most and best(out).backups >= out[-1].backups - step:
        out += simulated_splits(setting, needed, [out[-1].backups + step])
    return out


def best(splits: Iterable[BackupSplit]) -> BackupSplit:
    return min(splits, key=lambda split: split.total_s)
