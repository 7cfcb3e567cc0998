"""Every policy on one cluster, from schedules alone."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass

from tardigrad.checks import count
from tardigrad.clusters import TimedCluster
from tardigrad.policies import (
    Async,
    Backup,
    BoundedDelay,
    Deadline,
    Partial,
    Policy,
    SoftSync,
    StaleSynchronous,
    Sync,
)
from tardigrad.schedule import schedule
from tardigrad.schedule.analysis import Summary


@dataclass(frozen=True)
class Candidate:
    """A policy, and about how many gradients go into one of its updates."""

    policy: Policy
    gradients: int = 1


@dataclass(frozen=True)
class Judged:
    """What a candidate did on the cluster."""

    policy: Policy
    summary: Summary

    @property
    def label(self) -> str:
        return label(self.policy)


def label(policy: Policy) -> str:
    """A policy with what was chosen for it, such as Backup(backups=4)."""
    kind = type(policy).__name__
    if not is_dataclass(policy):
        return kind
    given = [f.name for f in fields(policy) if getattr(policy, f.name) != f.default]
    chosen = ", ".join(f"{name}={_short(getattr(policy, name))}" for name in given)
    return f"{kind}({chosen})" if chosen else kind


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def candidates(workers: int, backups: int, deadline_s: float) -> list[Candidate]:
    """Every policy with settings that suit so many workers, of whom so many may be spared.

    `RampUp` is not among them: after its first updates it is the policy that it is around.
    """
    everybody = [Candidate(Async()), Candidate(Sync(), workers)]
    if workers == 1:
        return everybody
    spared = min(max(1, backups), workers - 1)
    return [
        *everybody,
        Candidate(Backup(spared), workers - spared),
        Candidate(Partial(push=workers - spared, pull=0.9), workers - spared),
        Candidate(Deadline(timeout_s=deadline_s), workers - spared),
        Candidate(SoftSync(groups=max(1, workers // 4)), min(4, workers)),
        Candidate(StaleSynchronous(bound=3)),
        Candidate(BoundedDelay(max_delay=2 * workers)),
    ]


def judge(
    cluster: TimedCluster,
    policies: Sequence[Candidate],
    gradients: int = 20_000,
    shards: int = 1,
    seed: int = 0,
) -> list[Judged]:
    """Each policy until about so many gradients have been applied."""
    count("gradients", gradients)
    return [
        Judged(
            candidate.policy,
            Summary.of(
                schedule(
                    candidate.policy,
                    cluster,
                    max(10, gradients // candidate.gradients),
                    seed,
                    shards,
                )
            ),
        )
        for candidate in policies
    ]
