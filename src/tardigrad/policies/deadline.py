"""Synchronous with a deadline: go on with what has come."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.core.checks import not_negative
from tardigrad.policies.groups import RoundHalf
from tardigrad.policies.machine import Policy, PullAll, PullHalf, PushHalf, SetTimer, ShardCommand


@dataclass(frozen=True)
class Deadline(Policy):
    """Wait for all gradients of a version, but at most `timeout_s` from its beginning.

    When the time is over the mean of what has come is applied; if nothing has, the first to come is
    (with whatever comes at the same moment). Later gradients of that version are dropped ("too
    late") when they arrive, and their workers released with the current θ. A shard's first version
    begins at time 0, each other when the one before is applied.

    Args:
        timeout_s: how long a version waits at most, in seconds of the cluster.

    Limits: a deadline that is never reached is `Sync`.
    """

    timeout_s: float

    def __post_init__(self) -> None:
        not_negative("timeout_s", self.timeout_s)

    @property
    def needs_clock(self) -> bool:
        return True

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _DeadlineHalf(workers, self.timeout_s)

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards, same_version=True)


class _DeadlineHalf(RoundHalf):
    reason = "too late"

    def __init__(self, workers: Iterable[int], timeout_s: float) -> None:
        super().__init__(workers)
        self.timeout_s = timeout_s
        self._began_s = 0.0
        self._timed = -1  # the version whose timer is set

    def review(self, now_s: float) -> list[ShardCommand]:
        if self.exhausted:
            return self._end(now_s)
        if self.pending and self._timed != self.version:
            self._timed = self.version
            return [SetTimer(max(0.0, self._began_s + self.timeout_s - now_s), self.version)]
        return []

    def timer(self, token: int, now_s: float) -> list[ShardCommand]:
        return self._end(now_s) if token == self.version else []

    def _end(self, now_s: float) -> list[ShardCommand]:
        self._began_s = now_s
        return self.close()
