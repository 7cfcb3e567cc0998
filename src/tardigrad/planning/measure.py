"""The one way to a figure: make a policy's schedule on the cluster, and look at it."""

import math
from dataclasses import dataclass, field, fields, is_dataclass, replace

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import count
from tardigrad.links import Codec, Full, Identity
from tardigrad.links.identity import AS_THEY_ARE
from tardigrad.policies import Policy, Sync
from tardigrad.scheduling import Schedule, schedule
from tardigrad.scheduling.analysis import Summary, collect_times_s

DISTURBED = 5
"""How many times fewer gradients are simulated where no closed form makes the schedule."""
LEAST_UPDATES = 20
LEAST_STEPS = 20
"""Of each worker; else the gradients still under way at the end would weigh too much."""
SHORT = 0.9
"""A schedule that has this share of the gradients asked for is long enough."""


@dataclass(frozen=True)
class Measured:
    """What a policy did, with rows of so many batches."""

    policy: Policy
    summary: Summary
    batches: int = 1
    codec: Codec = AS_THEY_ARE
    """In which form gradients are pushed."""

    @property
    def label(self) -> str:
        local = f", {self.batches} local steps" if self.batches > 1 else ""
        coded = "" if isinstance(self.codec, Identity) else f", {label(self.codec)}"
        return label(self.policy) + local + coded


@dataclass(frozen=True)
class Setting:
    """Where policies are measured: the machines with their network and absences, and the shards.

    Whatever a plan says of a policy comes from the schedule that `schedule` makes of it, so that
    two places that speak of the same thing cannot differ.

    Args:
        gradients: how many each policy is to apply; a fifth of it where messages take time or
            workers leave, and `LEAST_STEPS` a worker in any case.
    """

    cluster: TimedCluster
    shards: int = 1
    gradients: int = 20_000
    seed: int = 0
    _made: dict[tuple[Policy, int, Codec], Schedule] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        count("gradients", self.gradients)
        count("shards", self.shards)

    @property
    def enough(self) -> int:
        """How many gradients are simulated."""
        fewer = 1 if self.cluster.undisturbed else DISTURBED
        return max(LEAST_STEPS * self.cluster.workers, self.gradients // fewer)

    def schedule(self, policy: Policy, batches: int = 1, codec: Codec = AS_THEY_ARE) -> Schedule:
        """The policy until enough rows, each of so many batches, have been applied.

        A short schedule shows how many gradients go into an update, which no policy says
        beforehand where workers leave or a deadline passes.
        """
        of = (policy, batches, codec)
        if of not in self._made:
            self._made[of] = self._make(*of)
        return self._made[of]

    def _make(self, policy: Policy, batches: int, codec: Codec) -> Schedule:
        updates, link = LEAST_UPDATES, Full(codec)
        while True:
            parts = (policy, self.cluster, updates, self.seed, self.shards, link)
            made = schedule(*parts, batches=batches)
            applied = len(made.group_rows) / self.shards
            if applied >= SHORT * self.enough:
                return made
            updates = math.ceil(updates * self.enough / applied)

    def measure(self, policy: Policy, batches: int = 1, codec: Codec = AS_THEY_ARE) -> Measured:
        """Its speed, waiting, delay and drops."""
        did = Summary.of(self.schedule(policy, batches, codec))
        return Measured(policy, did, batches, codec)

    @property
    def push_share(self) -> float:
        """How long the bytes of a gradient are on their way, as a multiple of a step's mean time;
        0 where no network says it."""
        network = self.cluster.network
        if network is None or network.bandwidth_bytes_s is None or network.push_bytes is None:
            return 0.0
        transfer_s = network.push_bytes / self.shards / network.bandwidth_bytes_s
        workers = np.arange(self.cluster.workers)
        times = self.cluster.realise(self.seed)
        step_s = times.step_s(workers[:, None], np.arange(LEAST_STEPS)[None, :])
        return transfer_s / float(np.mean(step_s))

    def collect_times_s(self) -> Floats:
        """Time to the k-th gradient of a version, nobody being late from the one before: (versions
        of all shards, workers)."""
        network = self.cluster.network
        made = self.schedule(Sync())
        if network is None:
            return collect_times_s(made)
        return collect_times_s(made, network.realise(self.seed, made.workers, self.shards))

    def sized(self, workers: int) -> "Setting":
        """The same with another number of workers."""
        return replace(self, cluster=self.cluster.sized(workers))


def label(part: Policy | Codec) -> str:
    """A policy or codec with what was chosen for it, such as Backup(backups=4)."""
    kind = type(part).__name__
    if not is_dataclass(part):
        return kind
    given = [f.name for f in fields(part) if getattr(part, f.name) != f.default]
    chosen = ", ".join(f"{name}={_short(getattr(part, name))}" for name in given)
    return f"{kind}({chosen})" if chosen else kind


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
