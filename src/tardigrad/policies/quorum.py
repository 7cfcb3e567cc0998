"""A quorum: wait for some gradients of a version, and a little longer for the others."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tardigrad.core.checks import count, not_negative, one_of, require
from tardigrad.policies.groups import RoundHalf
from tardigrad.policies.machine import (
    Arrival,
    Policy,
    PullAll,
    PullHalf,
    PushHalf,
    SetTimer,
    ShardCommand,
)


@dataclass(frozen=True)
class Quorum(Policy):
    """Wait for `size` workers' gradients of a version, then `grace_s` more; apply the mean.

    A version ends sooner where all present workers have answered. A gradient that comes later finds
    a newer version. It is dropped ("too late"), or left for the next update, to whose mean it is
    one more (late="next"); it does not count in that quorum, because its worker is released at
    once, in both cases, and pushes for it again. When fewer than `size` workers are present, all of
    those are waited for.

    Args:
        size: K, from 1 to the number of workers.
        grace_s: how long to wait after the K-th, in seconds of the cluster.
        late: what becomes of what comes later: "drop", or "next" for the next update.

    All gradients of an update weigh the same.

    Limits: size = workers, or a grace that all keep, is `Sync`; grace_s = 0 with late="drop" is
    `Backup(workers − size)` where nobody leaves.
    """

    size: int
    grace_s: float = 0.0
    late: Literal["drop", "next"] = "drop"

    def __post_init__(self) -> None:
        count("size", self.size)
        not_negative("grace_s", self.grace_s)
        one_of("late", self.late, ("drop", "next"))

    @property
    def needs_clock(self) -> bool:
        return self.grace_s > 0

    def check(self, workers: int, shards: int) -> None:
        require(
            self.size <= workers,
            f"size = {self.size} gradients of a version never come from {workers} workers: "
            f"use 1 to {workers}",
        )

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _QuorumHalf(workers, self.size, self.grace_s, self.late == "next")

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards, same_version=True)


class _QuorumHalf(RoundHalf):
    reason = "too late"

    def __init__(self, workers: Iterable[int], size: int, grace_s: float, keeps: bool) -> None:
        super().__init__(workers)
        self.size = size
        self.grace_s = grace_s
        self.keeps = keeps
        self._timed = -1  # the version whose timer is set

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        if self.keeps and arrival.stamp < self.version:
            return [*self.take(arrival), *self.review(now_s), *self.answer(arrival)]
        return super().pushed(arrival, now_s)

    def review(self, now_s: float) -> list[ShardCommand]:
        if self.exhausted or (self._enough and not self.grace_s):
            return self.close()
        if self._enough and self._timed != self.version:
            self._timed = self.version
            return [SetTimer(self.grace_s, self.version)]
        return []

    def timer(self, token: int, now_s: float) -> list[ShardCommand]:
        if token != self.version:
            return []
        if not self._enough:  # one of them has left since
            self._timed = -1
            return []
        return self.close()

    @property
    def _enough(self) -> bool:
        """`waiting` has who pushed for this version, once or more often."""
        return len(set(self.waiting)) >= max(1, min(self.size, len(self.members)))
