"""Malenia: a fair share of every worker in each update, however slow some are."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tardigrad.core.checks import count
from tardigrad.policies.groups import OpenRoundHalf
from tardigrad.policies.interrupting import InterruptingRoundHalf
from tardigrad.policies.machine import (
    Arrival,
    Policy,
    PullAll,
    PullHalf,
    PushHalf,
    ShardCommand,
)


@dataclass(frozen=True)
class Malenia(Policy):
    """Apply the mean over workers of each one's own mean of gradients of the current version.

    A worker gives as many as it can: B_i. An update is made as soon as every B_i ≥ 1 and

        (1/n Σ 1/B_i)^−1 ≥ S/n

    over the n workers that are present; a gradient of worker i then weighs 1/(n B_i). So each
    worker's data count the same (where workers have data of their own, `Rennala` would forget the
    slow ones'), and a slow worker's few gradients are made up for by the others' many.

    A worker that has pushed goes on at once with the version that is there; over several shards,
    when all are at one version. A gradient of an older version is dropped ("old version") when it
    arrives. Each shard counts for itself; where all workers have come to wait for it, because some
    of what they pushed was lost, it goes on with less. What a worker gave before it left stays in
    the update, as one more worker's share, but is not waited for.

    Args:
        batch: S, the gradients that an update is worth: where all give the same, how many it takes.
        stop: False: a worker computes to the end what will be dropped. True: when an update is made
            all are interrupted, and start again at the new version, as under `Rennala`.

    Traps: the harmonic mean is at most n times its smallest B_i, so for S > n² one slow worker must
    give several, and all wait for it. Meanwhile the others give more and more, and a shard keeps
    each until its update is made: on a cluster a worker that stands still costs memory.

    Limits: with one worker it is `Rennala(S)`; S ≤ n is at least one gradient of each.

    Reference: Tyurin and Richtárik, Optimal Time Complexities of Parallel Stochastic Optimization
    Methods Under a Fixed Computation Model (2023), where workers are interrupted.
    """

    batch: int
    stop: bool = False

    def __post_init__(self) -> None:
        count("batch", self.batch)

    @property
    def gives_weights(self) -> bool:
        return True

    @property
    def interrupts(self) -> bool:
        return self.stop

    @property
    def needs_all(self) -> bool:
        return True

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return (_StoppingHalf if self.stop else _MaleniaHalf)(workers, self.batch)

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards, same_version=True)


class _MaleniaHalf(OpenRoundHalf):
    def __init__(self, workers: Iterable[int], batch: int) -> None:
        super().__init__(workers, batch)
        self.given: Counter[int] = Counter()
        """How often `waiting` names each worker; many may come before the slowest has given one."""

    def gather(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        if self.present(arrival):
            self.given[arrival.worker] += 1
        return super().gather(arrival, now_s)

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        self.given.pop(worker, None)
        return super().left(worker, now_s)

    def close(self, scale: float = 1.0) -> list[ShardCommand]:
        self.given.clear()
        return super().close(scale)

    def review(self, now_s: float) -> list[ShardCommand]:
        return self.close()[:1] if self.exhausted or self._enough else []

    @property
    def _enough(self) -> bool:
        workers, each = len(self.members), self.given
        # No mean is above the plain one.
        if not workers or len(each) < workers or len(self.waiting) < self.batch:
            return False
        reciprocals = sum(Fraction(many, b) for b, many in Counter(each.values()).items())
        return reciprocals * self.batch <= workers**2  # exactly: 1/3 three times is 1

    def weigh(self, group: Sequence[Arrival]) -> tuple[float, ...]:
        each = Counter(arrival.worker for arrival in group)
        if len(set(each.values())) == 1:
            return ()
        return tuple([1 / (len(each) * each[arrival.worker]) for arrival in group])


class _StoppingHalf(InterruptingRoundHalf, _MaleniaHalf):
    pass
