"""Partial pulling beside any push half."""

from dataclasses import dataclass

from tardigrad.core.checks import require
from tardigrad.policies.machine import PullHalf
from tardigrad.policies.partial import Partial
from tardigrad.policies.pulling import PullAnswers, check_pulling
from tardigrad.policies.ramp_up import RampUp
from tardigrad.policies.wrapping import WrappingPolicy, layers


@dataclass(frozen=True)
class PartialPull(WrappingPolicy):
    """Push as `policy` says, but start when a share of the shards has answered the last push.

    A shard that has not answered keeps its older version in the view. What `policy` demands before
    it answers (a group applied, the slowest within a bound) then holds at that share of shards.

    Args:
        policy: any that answers pushes: `StaleSynchronous(2)`, `Async()`, `Backup(2)`, ….
        pull: the share of shards to wait for, in (0, 1].
        pull_timeout_s: how long to wait for the others after that.

    **Choice**: rounds (`Sync`, `Backup`, `Deadline`) are judged by a stamp, the newest version in
    the worker's view, as `Partial` judges by its own, so that a slow shard does not starve.

    A policy that interrupts workers is refused: a shard knows what a worker computes at only where
    each waits for its answer.

    Limits: pull = 1 is `policy`, except that shards need not be at the same version.
    """

    pull: float = 1.0
    pull_timeout_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pulling(self.pull, self.pull_timeout_s)
        for policy in layers(self.policy):
            inner = type(policy).__name__
            require(
                not isinstance(policy, Partial | PartialPull),
                f"PartialPull around {inner}, which pulls in part already: set pull on {inner} "
                "itself",
            )
            require(
                not isinstance(policy, RampUp),
                "PartialPull around RampUp would start all workers at once: "
                "use RampUp(PartialPull(policy, …), …)",
            )
        require(
            not self.policy.interrupts,
            f"PartialPull around {inner}(stop=True): a worker may then compute at an older version "
            "than a shard has sent it, so that the shard does not know whom to interrupt: leave "
            "stop out",
        )

    @property
    def needs_clock(self) -> bool:
        return self.pull_timeout_s > 0 or self.policy.needs_clock

    @property
    def pulls_all(self) -> bool:
        return self.pull >= 1

    def pull_half(self, shards: int) -> PullHalf:
        return PullAnswers(shards, self.pull, self.pull_timeout_s)
