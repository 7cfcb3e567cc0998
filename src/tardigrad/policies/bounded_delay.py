"""Asynchronous with a limit on the delay of what is applied."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tardigrad.core.checks import count
from tardigrad.policies.machine import Arrival, Drop, Policy, PushHalf, ShardCommand


@dataclass(frozen=True)
class BoundedDelay(Policy):
    """Apply each gradient on arrival if its delay is at most `max_delay`; drop it otherwise.

    The delay is counted at each shard against the version read of that shard. Either way the worker
    is released with the current θ. Dropped as "delay over bound".

    Args:
        max_delay: the largest delay, in updates, that is applied.

    Limits: with max_delay = 0 only gradients of the current version count; a bound that is never
    reached is `Async`.
    """

    max_delay: int

    reason: ClassVar[str] = "delay over bound"

    def __post_init__(self) -> None:
        count("max_delay", self.max_delay, least=0)

    @property
    def asynchronous(self) -> bool:
        return True

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return BoundedDelayHalf(workers, self.max_delay, self.reason)


class BoundedDelayHalf(PushHalf):
    def __init__(self, workers: Iterable[int], max_delay: int, reason: str) -> None:
        super().__init__(workers)
        self.max_delay = max_delay
        self.reason = reason

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        commands: list[ShardCommand]
        if self.version - arrival.read > self.max_delay:
            commands = [Drop(arrival.row, self.reason)]
        else:
            commands = [self.apply_one(arrival)]
        commands += self.answer(arrival)
        return commands
