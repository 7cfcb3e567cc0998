"""Asynchronous: apply each gradient as it arrives."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.policies.machine import (
    Arrival,
    Policy,
    PullAll,
    PullHalf,
    PushHalf,
    ShardCommand,
    Start,
    WorkerCommand,
    release,
)


@dataclass(frozen=True)
class Async(Policy):
    """Apply each gradient on arrival and release its worker with the new θ.

    wait=False: the worker goes on at once, from a version before its own push was applied (FRED's
    open question). Where messages take no time, that is the version that its push met: the shard
    answers before it applies. Over a network, the newest version that a worker has when it pushes
    is the last that came. It starts with that; the answer, still of the version that the push met,
    is in its view when it next starts. So it never waits, every push is answered, and each gradient
    is older by what was applied while the one before it was computed.

    Args:
        wait: whether a worker waits for the answer to its push; False: as described above.

    **Choice**: on Ray it waits for one message of shard 0, the number of its next gradient, by
    which samples are dealt; it does not wait for the version.
    """

    wait: bool = True

    @property
    def asynchronous(self) -> bool:
        return True

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _AsyncHalf(workers, self.wait)

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards) if self.wait else _PullLater(shards)


class _AsyncHalf(PushHalf):
    def __init__(self, workers: Iterable[int], wait: bool) -> None:
        super().__init__(workers)
        self.wait = wait

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        update = self.apply_one(arrival)
        if not self.present(arrival):
            return [update]
        answer = release(arrival.worker)
        return [update, answer] if self.wait else [answer, update]


class _PullLater(PullAll):
    """Starts when all have answered, or at once with what it has."""

    waits = False

    def go_on(self, now_s: float) -> list[WorkerCommand]:
        if not self._awaited:
            return []  # every answer has come, and it has started
        self._awaited = 0
        return [Start(self._newest)]
