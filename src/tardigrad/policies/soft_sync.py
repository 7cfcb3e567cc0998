"""n-softsync: small groups of gradients, whatever their age."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.core.checks import count, require
from tardigrad.policies.groups import GroupHalf
from tardigrad.policies.machine import Arrival, Policy, PushHalf, ShardCommand


@dataclass(frozen=True)
class SoftSync(Policy):
    """Apply after every ⌊workers / groups⌋ gradients, whatever their age, as one update.

    With a staleness-aware rule each gradient weighs 1 / (c τ), c being the group's size and τ its
    own staleness.

    Args:
        groups: n. From 1 to the number of workers; a group never has less than one gradient, also
            when workers have left.
        wait: True: a worker waits until its group is applied (FRED). False: it takes the version
            that is there and goes on (Zhang et al. 2015), so that a fast worker may be in one group
            twice. **Choice**: a push that completes its group is applied before its worker reads.

    Over several shards with message delays, groups of c may differ from shard to shard; waiting
    workers then cannot all come to wait for different shards where (c − 1) · shards < workers.

    Limits: groups = 1 with wait is `Sync`; groups = workers is `Async`.

    Reference: Zhang et al., Staleness-aware Async-SGD for Distributed Deep Learning (2015).
    """

    groups: int
    wait: bool = True

    def __post_init__(self) -> None:
        count("groups", self.groups)

    def check(self, workers: int, shards: int) -> None:
        require(
            self.groups <= workers,
            f"groups = {self.groups} divides {workers} workers into groups of less than one: "
            f"use 1 to {workers} groups",
        )

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _SoftSyncHalf(workers, self.groups, self.wait)


class _SoftSyncHalf(GroupHalf):
    def __init__(self, workers: Iterable[int], groups: int, wait: bool) -> None:
        super().__init__(workers)
        self.groups = groups
        self.wait = wait

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        gathered = self.gather(arrival, now_s)
        return gathered if self.wait else [*gathered, *self.answer(arrival)]

    def review(self, now_s: float) -> list[ShardCommand]:
        enough = len(self.members) // self.groups or 1
        if len(self.waiting) < enough:
            return []
        commands = self.close()
        return commands if self.wait else commands[:1]
