"""Synchronous: one update per round, from everybody's gradient."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.policies.groups import QuotaHalf
from tardigrad.policies.machine import Policy, PullAll, PullHalf, PushHalf


@dataclass(frozen=True)
class Sync(Policy):
    """Wait for all workers' gradients of this version, apply their mean once, release all."""

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return QuotaHalf(workers)

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards, same_version=True)
