"""A policy of one's own: apply gradients two by two, whoever sent them."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.policies import Policy, PushHalf
from tardigrad.policies.groups import GroupHalf
from tardigrad.policies.machine import ShardCommand


@dataclass(frozen=True)
class Pairs(Policy):
    """Apply after every two gradients; their workers wait for it."""

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return PairsHalf(workers)


class PairsHalf(GroupHalf):
    def review(self, now_s: float) -> list[ShardCommand]:
        enough = min(2, len(self.members))  # the last worker left does not wait for another
        return self.close() if len(self.waiting) >= enough else []
