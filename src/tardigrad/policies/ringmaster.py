"""Ringmaster: asynchronous, without what is too late."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tardigrad.core.checks import count, require
from tardigrad.policies.bounded_delay import BoundedDelayHalf
from tardigrad.policies.machine import Policy, PushHalf

NO_STOP = "interrupting workers is not supported: leave stop out, and what is late is dropped"


@dataclass(frozen=True)
class Ringmaster(Policy):
    """Apply each gradient on arrival if its delay is below `bound`; drop it otherwise.

    Either way the worker is released with the current θ. Dropped as "delay at bound". The delay is
    counted at each shard against the version read of that shard.

    Args:
        bound: R. The delay d is accepted iff d < R.
        stop: False: a worker computes to the end what will be dropped. Interrupting it is refused.

    For an L-smooth function, noise of variance σ² and gradients as small as √ε, the paper's rate is
    γ = min(1/(2RL), ε/(4Lσ²)).

    Limits: it is `BoundedDelay(bound − 1)`, which other papers count so; a bound that is never
    reached is `Async`.

    Reference: Maranjyan, Tyurin and Richtárik, Ringmaster ASGD (2025), Algorithm 4.
    """

    bound: int
    stop: bool = False

    reason: ClassVar[str] = "delay at bound"

    def __post_init__(self) -> None:
        count("bound", self.bound)
        require(not self.stop, f"Ringmaster(stop=True): {NO_STOP}")

    @property
    def max_delay(self) -> int:
        """The largest delay that is applied."""
        return self.bound - 1

    @property
    def asynchronous(self) -> bool:
        return True

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return BoundedDelayHalf(workers, self.max_delay, self.reason)
