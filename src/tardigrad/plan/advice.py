"""What to run on a cluster, and why."""

from dataclasses import dataclass

import numpy as np

from tardigrad.checks import count, positive
from tardigrad.clusters import TimedCluster
from tardigrad.keys import Floats
from tardigrad.plan.candidates import Judged, candidates, judge
from tardigrad.plan.needed import Needed
from tardigrad.plan.speedup import Speedup, speedups
from tardigrad.plan.splits import (
    Split,
    best,
    collect_times,
    estimated_splits,
    splits_near,
)
from tardigrad.policies import Async, Backup, Policy, Sync

DISTURBED = 5
"""How many times fewer gradients are simulated where no closed form makes the schedule."""


@dataclass(frozen=True)
class Plan:
    """Everything that was found out, and the policy chosen."""

    cluster: TimedCluster
    judged: tuple[Judged, ...]
    times_s: Floats
    """Time to the k-th gradient, all workers starting together: (rounds, workers)."""
    estimated: tuple[Split, ...]
    """Every split of the machines, by order statistics."""
    simulated: tuple[Split, ...]
    """Those near the best, by running the policy."""
    speedups: tuple[Speedup, ...]
    needed: Needed
    policy: Policy
    why: str

    @property
    def split(self) -> Split:
        """The best split by simulation."""
        return best(self.simulated)


def advise(
    cluster: TimedCluster,
    needed: Needed | None = None,
    gradients: int = 20_000,
    shards: int = 1,
    seed: int = 0,
    async_gain: float = 1.5,
) -> Plan:
    """Look at every policy on the cluster and choose.

    Among synchronous policies the split of workers and backups with the least total time wins
    (updates needed × time per update, as simulated). Asynchrony costs accuracy that no schedule
    shows, so it is chosen only where it applies at least `async_gain` times as many gradients per
    second (**choice**).

    Args:
        needed: updates needed by gradients per update; None: every gradient counts the same.
        gradients: how many gradients each policy is simulated for.
        async_gain: how much faster asynchrony must be to be worth its staleness.
    """
    count("gradients", gradients, least=cluster.workers)
    positive("async_gain", async_gain)
    needed = needed or Needed()
    effort = gradients if cluster.undisturbed else max(cluster.workers, gradients // DISTURBED)
    rounds = max(20, effort // cluster.workers)
    times_s = collect_times(cluster, rounds * (10 if cluster.undisturbed else 1), seed)
    estimated = estimated_splits(times_s, needed, least=(cluster.workers + 1) // 2)
    simulated = splits_near(cluster, needed, best(estimated).backups, rounds, seed)
    split = best(simulated)
    deadline_s = float(np.nanmean(times_s[:, split.workers - 1]))
    offered = candidates(cluster.workers, split.backups, deadline_s)
    judged = judge(cluster, offered, effort, shards, seed)
    policy, why = _choose(split, judged, async_gain)
    return Plan(
        cluster=cluster,
        judged=tuple(judged),
        times_s=times_s,
        estimated=tuple(estimated),
        simulated=tuple(simulated),
        speedups=tuple(_speedups(cluster, effort, seed)),
        needed=needed,
        policy=policy,
        why=why,
    )


def _choose(split: Split, judged: list[Judged], async_gain: float) -> tuple[Policy, str]:
    free = next(j.summary.gradients_per_s for j in judged if j.policy == Async())
    waiting = split.workers / split.update_s
    if split.workers + split.backups == 1:
        return Sync(), "one worker waits for nobody"
    if free >= async_gain * waiting:
        return Async(), (
            f"asynchronous workers apply {free / waiting:.2f} times as many gradients per second "
            f"as the best synchronous split ({split.workers} + {split.backups}), which is at least "
            f"{async_gain:g}; use a rule that corrects for staleness"
        )
    lead = (
        f"asynchrony would apply only {free / waiting:.2f} times as many gradients per second, "
        f"less than the {async_gain:g} that its staleness is taken to cost"
    )
    if split.backups == 0:
        return Sync(), f"no backups pay off; {lead}"
    return Backup(split.backups), (
        f"{split.workers} workers + {split.backups} backups need the least time; {lead}"
    )


def _speedups(cluster: TimedCluster, gradients: int, seed: int) -> list[Speedup]:
    """For powers of two up to all workers; for all alone where sizes cannot change."""
    sizes = [1 << i for i in range(cluster.workers.bit_length()) if 1 << i < cluster.workers]
    runs = 3 if cluster.undisturbed else 1
    try:
        return speedups(cluster, [*sizes, cluster.workers], gradients, runs, seed)
    except ValueError:  # times or absences of single workers are part of the model
        return speedups(cluster, [cluster.workers], gradients, runs, seed)
