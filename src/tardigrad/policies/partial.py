"""Partially synchronous parallel SGD: partial pushing and partial pulling."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.core.checks import count, not_negative, require
from tardigrad.policies.groups import RoundHalf
from tardigrad.policies.machine import (
    Arrival,
    Drop,
    Policy,
    PullHalf,
    PushHalf,
    SetTimer,
    ShardCommand,
    release,
)
from tardigrad.policies.pulling import PullRound, check_pulling


@dataclass(frozen=True)
class Partial(Policy):
    """PSP: shards apply when `push` gradients are there, workers start at a share `pull` of blocks.

    A worker carries one round number and stamps all its pushes with it, also those of blocks that
    are older. A shard at version t takes gradients stamped t or newer until `push` of them are
    there and then for up to `push_timeout_s` more, or until all present workers have answered (one
    whose gradient was dropped has not); it updates with d·η·Updater(mean of d) and broadcasts its
    new version to all. Older stamps are dropped ("old stamp"). A worker in round t starts when the
    share `pull` of all blocks has come in version t or newer, after up to `pull_timeout_s` more or
    when all have; a block that has not come keeps its older value.

    Args:
        push: c, from 1 to the number of workers; None: all. When fewer are present, all of those.
        pull: b, in (0, 1].
        push_timeout_s: τ1.
        pull_timeout_s: τ2.
        catch_up: a worker that fell behind jumps to the newest round whose share of blocks it has.
            False: it counts its own rounds, as printed, and stays behind until servers wait for it.

    **Choices**: all start from θ0 (the printed worker starts from 0). Judging a push by the version
    it read would starve the shard whose block comes last. A worker that is a round ahead of a
    lagging shard may be in one group twice. A shard that has nothing more to expect of a round,
    because everybody has pushed for it or for a later one, goes on with less than `push`.

    Limits: push and pull of all is `Sync` with linear scaling, that is with N·η.

    Reference: Faster Distributed Synchronous SGD with Weak Synchronization (2018), Algorithm 1.
    """

    push: int | None = None
    pull: float = 1.0
    push_timeout_s: float = 0.0
    pull_timeout_s: float = 0.0
    catch_up: bool = True

    def __post_init__(self) -> None:
        if self.push is not None:
            count("push", self.push)
        not_negative("push_timeout_s", self.push_timeout_s)
        check_pulling(self.pull, self.pull_timeout_s)

    @property
    def needs_clock(self) -> bool:
        return self.push_timeout_s > 0 or self.pull_timeout_s > 0

    @property
    def pulls_all(self) -> bool:
        return self.pull >= 1

    def check(self, workers: int, shards: int) -> None:
        require(
            self.push is None or self.push <= workers,
            f"push = {self.push} gradients never come from {workers} workers: "
            f"use 1 to {workers}, or leave push out for all",
        )

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _PartialHalf(workers, self.push, self.push_timeout_s)

    def pull_half(self, shards: int) -> PullHalf:
        return PullRound(shards, self.pull, self.pull_timeout_s, self.catch_up)


class _PartialHalf(RoundHalf):
    reason = "old stamp"

    def __init__(self, workers: Iterable[int], push: int | None, timeout_s: float) -> None:
        super().__init__(workers)
        self.push = push
        self.timeout_s = timeout_s
        self._timed = -1  # the version whose timer is set

    def refuse(self, arrival: Arrival) -> list[ShardCommand]:
        return [Drop(arrival.row, self.reason)]  # its worker has had the broadcast

    def review(self, now_s: float) -> list[ShardCommand]:
        enough = self.push is not None and len(self.pending) >= self.push
        if (enough and not self.timeout_s) or self.exhausted:
            return self.close()
        if enough and self._timed != self.version:
            self._timed = self.version
            return [SetTimer(self.timeout_s, self.version)]
        return []

    def timer(self, token: int, now_s: float) -> list[ShardCommand]:
        if token != self.version:
            return []
        if len(self.pending) < (self.push or 0):  # one stood in for two of an earlier stay
            self._timed = -1
            return []
        return self.close()

    def close(self, scale: float = 1.0) -> list[ShardCommand]:
        """Linear scaling, and the new version to everybody."""
        update, *_ = super().close(scale * len(self.pending))
        return [update, *map(release, sorted(self.members))]
