"""A quorum: wait for some gradients of a version, and a little longer for the others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tardigrad.core.checks import count, not_negative, one_of, require
from tardigrad.policies.groups import RoundHalf
from tardigrad.policies.lateness import late_after_s
from tardigrad.policies.machine import (
    Arrival,
    Policy,
    PullAll,
    PullHalf,
    PushHalf,
    SetTimer,
    ShardCommand,
)

REMEMBERED = 16
"""Times that are kept of each present worker (**choice**): enough for a median, and soon another
where speeds change."""
VERSIONS = 64
"""Versions back of which it is known when they began. What is later tells no time."""

Weights = Literal["equal", "samples", "samples_squared_per_step"]
WEIGHTS: tuple[Weights, ...] = ("equal", "samples", "samples_squared_per_step")


@dataclass(frozen=True)
class Quorum(Policy):
    """Wait for `size` workers' gradients of a version, then a grace; apply their weighted mean.

    A version ends sooner where all present workers have answered. A gradient that comes later finds
    a newer version. It is dropped ("too late"), or joins the mean of the next update (late="next").
    It does not count in that quorum: in both cases its worker is released at once and pushes for it
    again. When fewer than `size` workers are present, all of those are waited for.

    Args:
        size: K, from 1 to the number of workers.
        grace_s: how long to wait after the K-th, in seconds of the cluster.
        late: what becomes of what comes later: "drop", or "next" for the next update.
        weights: how much a gradient counts: all the same ("equal"), in proportion to the samples in
            it ("samples"), or to samples² / steps, which prefers large batches
            ("samples_squared_per_step"; Decoupled DiLoCo: tokens² / steps).
        grace_deviations: k, in place of `grace_s`: after the K-th, wait until median + k · MAD
            of the time from a version's beginning until a gradient of it comes. Each shard measures
            for itself, late ones too, the last 16 of each worker; 5 is 3.4 standard deviations of
            normal times.

    Traps: with a measured grace a quorum of less than half the workers learns from few at first,
    and may drop what is not late. Rows differ in their samples under `DyLU` alone; there every step
    takes a batch of one size, so that the two weights that are not equal are the same.

    Limits: size = workers, or a grace that all keep, is `Sync`; grace_s = 0 with late="drop" is
    `Backup(workers − size)` where nobody leaves.
    """

    size: int
    grace_s: float = 0.0
    late: Literal["drop", "next"] = "drop"
    weights: Weights = "equal"
    grace_deviations: float | None = None

    def __post_init__(self) -> None:
        count("size", self.size)
        not_negative("grace_s", self.grace_s)
        one_of("late", self.late, ("drop", "next"))
        one_of("weights", self.weights, WEIGHTS)
        if self.grace_deviations is not None:
            not_negative("grace_deviations", self.grace_deviations)
            require(
                not self.grace_s,
                "Quorum takes grace_s=…, a time, or grace_deviations=…, which has the time "
                f"measured: got grace_s={self.grace_s} and "
                f"grace_deviations={self.grace_deviations}",
            )

    @property
    def needs_clock(self) -> bool:
        return self.grace_s > 0 or self.grace_deviations is not None

    @property
    def gives_weights(self) -> bool:
        return self.weights != "equal"

    def check(self, workers: int, shards: int) -> None:
        require(
            self.size <= workers,
            f"size = {self.size} gradients of a version never come from {workers} workers: "
            f"use 1 to {workers}",
        )

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _QuorumHalf(workers, self)

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards, same_version=True)


class _QuorumHalf(RoundHalf):
    reason = "too late"

    def __init__(self, workers: Iterable[int], policy: Quorum) -> None:
        super().__init__(workers)
        self.policy = policy
        self._timed = -1  # the version whose timer is set
        self._began_s = {0: 0.0}
        """When each of the last versions began,"""
        self._took_s: list[float] = []
        """and how long after that gradients of it came, of which the last `_kept` count."""
        self._kept = 0

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        self._measure(arrival, now_s)
        if self.policy.late == "next" and arrival.stamp < self.version:
            return [*self.take(arrival), *self.review(now_s), *self.answer(arrival)]
        return super().pushed(arrival, now_s)

    def review(self, now_s: float) -> list[ShardCommand]:
        if self.exhausted:
            return self._end(now_s)
        if self._timed == self.version or not self._enough:
            return []
        grace_s = self._grace_s(now_s)
        if grace_s <= 0:
            return self._end(now_s)
        self._timed = self.version
        return [SetTimer(grace_s, self.version)]

    def timer(self, token: int, now_s: float) -> list[ShardCommand]:
        if token != self.version:
            return []
        if not self._enough:  # one of them has left since
            self._timed = -1
            return []
        return self._end(now_s)

    def _end(self, now_s: float) -> list[ShardCommand]:
        commands = self.close()
        self._began_s[self.version] = now_s
        self._began_s.pop(self.version - VERSIONS, None)
        return commands

    def _measure(self, arrival: Arrival, now_s: float) -> None:
        began_s = self._began_s.get(arrival.stamp)
        if self.policy.grace_deviations is not None and began_s is not None:
            took_s, most = self._took_s, REMEMBERED * max(1, len(self.members))
            took_s.append(now_s - began_s)
            self._kept = min(self._kept + 1, most)
            if len(took_s) > 2 * most:  # not each time: all that follow would be moved
                del took_s[: -self._kept]

    def _grace_s(self, now_s: float) -> float:
        deviations = self.policy.grace_deviations
        if deviations is None or not self._took_s:
            return self.policy.grace_s
        return (
            self._began_s[self.version]
            + late_after_s(self._took_s[-self._kept :], deviations)
            - now_s
        )

    @property
    def _enough(self) -> bool:
        """`waiting` has who pushed for this version, once or more often."""
        quota = max(1, min(self.policy.size, len(self.members)))
        return len(self.waiting) >= quota and len(set(self.waiting)) >= quota

    def weigh(self, group: Sequence[Arrival]) -> tuple[float, ...]:
        if self.policy.weights == "equal":
            return ()
        samples = [arrival.samples or arrival.steps for arrival in group]
        worth = [float(many) for many in samples]
        if self.policy.weights == "samples_squared_per_step":
            worth = [m * m / arrival.steps for m, arrival in zip(samples, group, strict=True)]
        return () if len(set(worth)) == 1 else tuple([w / sum(worth) for w in worth])
