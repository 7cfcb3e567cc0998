"""Synchronous: one update per round, from everybody's gradient."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.policies.machine import (
    Arrival,
    Policy,
    PullAll,
    PullHalf,
    PushHalf,
    Release,
    ShardCommand,
)


@dataclass(frozen=True)
class Sync(Policy):
    """Wait for all workers' gradients of this version, apply their mean once, release all."""

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _SyncHalf(workers)

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards, same_version=True)


class _SyncHalf(PushHalf):
    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        self._waiting: dict[int, Arrival] = {}

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        self._waiting[arrival.worker] = arrival
        return self._complete()

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        return self._complete()

    def _complete(self) -> list[ShardCommand]:
        if not self._waiting or not self.members <= self._waiting.keys():
            return []
        group = self._waiting
        self._waiting = {}
        # One who left after pushing has its gradient applied, but nobody to release.
        released = [Release(w) for w in sorted(group) if w in self.members]
        return [self.apply(list(group.values())), *released]
