"""n-softsync: small groups of gradients, whatever their age."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.core.checks import count, require
from tardigrad.policies.groups import GroupHalf
from tardigrad.policies.machine import Arrival, Policy, PushHalf, ShardCommand


@dataclass(frozen=True)
class SoftSync(Policy):
    """Apply after every ⌊workers / groups⌋ gradients, or every `size`, whatever their age.

    With a staleness-aware rule each gradient weighs 1 / (c τ), c being the group's size and τ its
    own staleness. `SoftSync(size=10, wait=False)` with the rule `staleness_weighted` is FedBuff.

    Args:
        groups: n. From 1 to the number of workers; a group never has less than one gradient, also
            when workers have left.
        size: c itself, in place of `groups`. Where workers wait it is at most their number, and
            when fewer are present, all of those.
        wait: True: a worker waits until its group is applied (FRED). False: it takes the version
            that is there and goes on (Zhang et al. 2015), so that a fast worker may be in one group
            twice. **Choice**: a push that completes its group is applied before its worker reads.

    Over several shards with message delays, groups of c may differ from shard to shard; waiting
    workers then cannot all come to wait for different shards where (c − 1) · shards < workers.

    Limits: groups = 1, or size = workers, with wait is `Sync`; groups = workers, or size = 1, is
    `Async`.

    Reference: Zhang et al., Staleness-aware Async-SGD for Distributed Deep Learning (2015); Nguyen
    et al., Federated Learning with Buffered Asynchronous Aggregation (2022).
    """

    groups: int | None = None
    wait: bool = True
    size: int | None = None

    def __post_init__(self) -> None:
        require(
            (self.groups is None) != (self.size is None),
            "SoftSync takes groups=…, how many groups the workers make, or size=…, how many "
            f"gradients a group has: got groups={self.groups!r} and size={self.size!r}",
        )
        if self.groups is not None:
            count("groups", self.groups)
        if self.size is not None:
            count("size", self.size)

    def group_size(self, workers: int) -> int:
        """How many gradients make a group where so many workers are present."""
        return _group_size(self.groups, self.size, self.wait, workers)

    def check(self, workers: int, shards: int) -> None:
        require(
            self.size is None or not self.wait or self.size <= workers,
            f"size = {self.size} gradients never come from {workers} workers that wait for each "
            f"other: use 1 to {workers}, or wait=False",
        )
        require(
            self.groups is None or self.groups <= workers,
            f"groups = {self.groups} divides {workers} workers into groups of less than one: "
            f"use 1 to {workers} groups",
        )

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _SoftSyncHalf(workers, self.groups, self.size, self.wait)


class _SoftSyncHalf(GroupHalf):
    def __init__(
        self, workers: Iterable[int], groups: int | None, size: int | None, wait: bool
    ) -> None:
        super().__init__(workers)
        self.groups = groups
        self.size = size
        self.wait = wait
        self.enough = self._group_size()

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        commands = self.gather(arrival, now_s)
        if not self.wait:
            commands += self.answer(arrival)
        return commands

    def joined(self, worker: int, now_s: float) -> list[ShardCommand]:
        self.enough = self._group_size()
        return []

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        self.enough = self._group_size()
        return super().left(worker, now_s)

    def review(self, now_s: float) -> list[ShardCommand]:
        if len(self.waiting) < self.enough:
            return []
        if self.wait:
            return self.close()
        group, self.pending, self.waiting = self.pending, [], []  # they have been answered
        return [self.apply(group)]

    def _group_size(self) -> int:
        """Of those who are present: asked when one comes or goes, not for each gradient."""
        return _group_size(self.groups, self.size, self.wait, len(self.members))


def _group_size(groups: int | None, size: int | None, wait: bool, workers: int) -> int:
    if size is None:
        return max(1, workers // (groups or 1))
    return max(1, min(size, workers)) if wait else size
