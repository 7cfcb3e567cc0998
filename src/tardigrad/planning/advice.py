"""What to run on a cluster, and why."""

from dataclasses import dataclass

from tardigrad.clusters import TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import count, positive
from tardigrad.planning.candidates import candidates, deadline_of
from tardigrad.planning.measure import Measured, Setting
from tardigrad.planning.needed import Needed
from tardigrad.planning.speedup import Speedup, speedup
from tardigrad.planning.splits import BackupSplit, best, estimated_splits, splits_near
from tardigrad.policies import Async, Policy


@dataclass(frozen=True)
class Plan:
    """Everything that was found out, and the policy chosen."""

    setting: Setting
    measured: tuple[Measured, ...]
    times_s: Floats
    """Time to the k-th gradient of a version, nobody being late: (versions, workers)."""
    estimated: tuple[BackupSplit, ...]
    """Every split of the machines, by order statistics."""
    simulated: tuple[BackupSplit, ...]
    """Those near the best, by running the policy."""
    speedups: tuple[Speedup, ...]
    needed: Needed
    policy: Policy
    why: str

    @property
    def split(self) -> BackupSplit:
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
        gradients: how many gradients each policy is simulated for (see `Setting`).
        async_gain: how much faster asynchrony must be to be worth its staleness.
    """
    count("gradients", gradients, least=cluster.workers)
    positive("async_gain", async_gain)
    needed = needed or Needed()
    setting = Setting(cluster, shards, gradients, seed)
    times_s = setting.collect_times_s()
    estimated = estimated_splits(times_s, needed, least=(cluster.workers + 1) // 2)
    simulated = splits_near(setting, needed, best(estimated).backups)
    split = best(simulated)
    offered = candidates(cluster.workers, split.backups, deadline_of(times_s))
    policy, why = _choose(setting, split, async_gain)
    return Plan(
        setting=setting,
        measured=tuple(setting.measure(offer) for offer in offered),
        times_s=times_s,
        estimated=tuple(estimated),
        simulated=tuple(simulated),
        speedups=tuple(speedup([sized]) for sized in _sizes(setting)),
        needed=needed,
        policy=policy,
        why=why,
    )


def _choose(setting: Setting, split: BackupSplit, async_gain: float) -> tuple[Policy, str]:
    free = setting.measure(Async()).summary.gradients_per_s
    waiting = setting.measure(split.policy).summary.gradients_per_s
    if setting.cluster.workers == 1:
        return split.policy, "one worker waits for nobody"
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
        return split.policy, f"no backups pay off; {lead}"
    return split.policy, (
        f"{split.workers} workers + {split.backups} backups need the least time; {lead}"
    )


def _sizes(setting: Setting) -> list[Setting]:
    """Powers of two up to all workers; all alone where times or absences belong to single ones."""
    workers = setting.cluster.workers
    sizes = [1 << i for i in range(workers.bit_length()) if 1 << i < workers]
    if setting.cluster.absences:
        return [setting]
    try:
        return [*(setting.sized(n) for n in sizes), setting]
    except ValueError:
        return [setting]
