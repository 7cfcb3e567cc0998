"""Synchronous with backup workers: do not wait for the slowest."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.core.checks import count, require
from tardigrad.policies.groups import QuotaHalf
from tardigrad.policies.machine import Policy, PullAll, PullHalf, PushHalf


@dataclass(frozen=True)
class Backup(Policy):
    """Apply the mean of the first (workers − backups) gradients of a version; drop later ones.

    A gradient of an old version is dropped ("old version") when it arrives, and its worker is
    released with the current θ. When workers leave, the number waited for shrinks with them, down
    to one; the number of backups stays.

    Args:
        backups: how many gradients of a version are not waited for.

    Limits: backups = 0 is `Sync`.

    Reference: Chen et al., Revisiting Distributed Synchronous SGD (2016), Algorithms 3 and 4.
    """

    backups: int

    def __post_init__(self) -> None:
        count("backups", self.backups, least=0)

    def check(self, workers: int, shards: int) -> None:
        require(
            self.backups < workers,
            f"backups = {self.backups} leaves nobody to wait for among {workers} workers: "
            f"use at most {workers - 1} backups, or more workers",
        )

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return QuotaHalf(workers, self.backups)

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards, same_version=True)
