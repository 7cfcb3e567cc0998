"""Rennala: batches of gradients of one version, from whoever is fast."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.core.checks import count
from tardigrad.policies.groups import OpenRoundHalf
from tardigrad.policies.interrupting import InterruptingRoundHalf
from tardigrad.policies.machine import (
    Policy,
    PullAll,
    PullHalf,
    PushHalf,
    ShardCommand,
)


@dataclass(frozen=True)
class Rennala(Policy):
    """Apply the mean of `batch` gradients of one version; drop the rest, or interrupt them.

    A worker may give several. Having pushed, it goes on at once with the version that is there;
    over several shards, when all are at one version. A gradient of an older version is dropped
    ("old version") when it arrives. Each shard counts for itself; where all workers have come to
    wait for it, because some of what they pushed was lost, it goes on with less.

    Args:
        batch: B, how many gradients an update takes, from one worker or several.
        stop: False: a worker computes to the end what will be dropped. True: when the batch is
            full the rest are interrupted, and start again at the new version. What they were
            computing is dropped as "interrupted".

    **Choice**: over several shards the first one whose batch is full interrupts; what it was full
    of comes to the others too. An interrupted step has used up its batch of data. When a worker
    hears of it: see `Ringmaster`.

    Limits: batch = 1 is `BoundedDelay(0)`. With one worker it is one worker with a batch B times
    as large.

    Reference: Tyurin and Richtárik, Optimal Time Complexities of Parallel Stochastic Optimization
    Methods Under a Fixed Computation Model (2023).
    """

    batch: int
    stop: bool = False

    def __post_init__(self) -> None:
        count("batch", self.batch)

    @property
    def interrupts(self) -> bool:
        return self.stop

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return (_StoppingHalf if self.stop else _RennalaHalf)(workers, self.batch)

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards, same_version=True)


class _RennalaHalf(OpenRoundHalf):
    def review(self, now_s: float) -> list[ShardCommand]:
        # Of those who left too: nobody is waited for, and their gradients are of this version.
        enough = len(self.pending) >= self.batch or self.exhausted
        return self.close()[:1] if enough else []


class _StoppingHalf(InterruptingRoundHalf, _RennalaHalf):
    pass
