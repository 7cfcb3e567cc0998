"""Asynchronous: apply each gradient as it arrives."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.policies.machine import Arrival, Policy, PushHalf, ShardCommand


@dataclass(frozen=True)
class Async(Policy):
    """Apply each gradient on arrival and release its worker with the new θ.

    wait=False releases it with the version before its own push was applied, as a worker that does
    not wait for the server would read it (FRED's open question).
    """

    wait: bool = True

    @property
    def asynchronous(self) -> bool:
        return True

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _AsyncHalf(workers, self.wait)


class _AsyncHalf(PushHalf):
    def __init__(self, workers: Iterable[int], wait: bool) -> None:
        super().__init__(workers)
        self.wait = wait

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        if self.wait:
            return [self.apply([arrival]), *self.answer(arrival)]
        return [*self.answer(arrival), self.apply([arrival])]
