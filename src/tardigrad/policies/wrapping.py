"""Policies around another."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tardigrad.core.checks import of_kind
from tardigrad.policies.machine import Policy, PullHalf, PushHalf
from tardigrad.policies.pace import Pace


@dataclass(frozen=True)
class WrappingPolicy(Policy):
    """Says what `policy` says, but for what it decides itself."""

    policy: Policy

    def __post_init__(self) -> None:
        of_kind("policy", self.policy, Policy, "a tg.Policy", "tg.Async()")

    @property
    def needs_clock(self) -> bool:
        return self.policy.needs_clock

    @property
    def asynchronous(self) -> bool:
        return self.policy.asynchronous

    @property
    def gives_weights(self) -> bool:
        return self.policy.gives_weights

    @property
    def needs_all(self) -> bool:
        return self.policy.needs_all

    @property
    def interrupts(self) -> bool:
        return self.policy.interrupts

    @property
    def pulls_all(self) -> bool:
        return self.policy.pulls_all

    def pace(self, steps: int) -> Pace | None:
        return self.policy.pace(steps)

    def check(self, workers: int, shards: int) -> None:
        self.policy.check(workers, shards)

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return self.policy.push_half(workers)

    def pull_half(self, shards: int) -> PullHalf:
        return self.policy.pull_half(shards)


def layers(policy: Policy) -> Iterator[Policy]:
    """The policy, what it is around, and so on to the innermost."""
    yield policy
    if isinstance(policy, WrappingPolicy):
        yield from layers(policy.policy)
