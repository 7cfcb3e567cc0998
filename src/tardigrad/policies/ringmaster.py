"""Ringmaster: asynchronous, without what is too late."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tardigrad.core.checks import count
from tardigrad.policies.bounded_delay import BoundedDelayHalf
from tardigrad.policies.interrupting import InterruptingHalf
from tardigrad.policies.machine import Arrival, Policy, PushHalf, ShardCommand


@dataclass(frozen=True)
class Ringmaster(Policy):
    """Apply a gradient on arrival if its delay is below `bound`; else drop it, or interrupt it.

    Either way the worker is released with the current θ. Dropped as "delay at bound". The delay is
    counted at each shard against the version read of that shard.

    Args:
        bound: R. The delay d is accepted iff d < R.
        stop: False: a worker computes to the end what will be dropped (Algorithm 4). True: the
            moment a computing worker's delay reaches R it is interrupted, and starts again at the
            current θ (Algorithm 5). What it was computing is dropped as "interrupted".

    **Choice**: over several shards a worker is interrupted when its delay reaches R at one of them,
    and its gradient is then dropped at all. An interrupted step has used up its batch: the worker's
    next step takes the next one. A message takes its time to the worker, which on Ray hears it
    between batches (`tg.MicroBatches`, `tg.LocalSteps`) or when it is done; what comes in before it
    was heard is dropped as without `stop`.

    For an L-smooth function, noise of variance σ² and gradients as small as √ε, the paper's rate is
    γ = min(1/(2RL), ε/(4Lσ²)).

    Limits: it is `BoundedDelay(bound − 1)`, as other papers count the bound; a bound that is never
    reached is `Async`.

    Reference: Maranjyan, Tyurin and Richtárik, Ringmaster ASGD (2025), Algorithms 4 and 5.
    """

    bound: int
    stop: bool = False

    reason: ClassVar[str] = "delay at bound"

    def __post_init__(self) -> None:
        count("bound", self.bound)

    @property
    def max_delay(self) -> int:
        """The largest delay that is applied."""
        return self.bound - 1

    @property
    def asynchronous(self) -> bool:
        return True

    @property
    def interrupts(self) -> bool:
        return self.stop

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        kind = _StoppingHalf if self.stop else BoundedDelayHalf
        return kind(workers, self.max_delay, self.reason)


class _StoppingHalf(InterruptingHalf, BoundedDelayHalf):
    def __init__(self, workers: Iterable[int], max_delay: int, reason: str) -> None:
        super().__init__(workers, max_delay, reason)
        self.watch(max_delay + 1)

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        return [*super().pushed(arrival, now_s), *self.overdue()]
