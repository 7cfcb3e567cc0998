"""A run, as all its processes know it."""

from dataclasses import dataclass

from tardigrad.core.layout import Sharding
from tardigrad.policies import Policy
from tardigrad.rules import Rule
from tardigrad.tasks import Task


@dataclass(frozen=True)
class RunSetup:
    task: Task
    rule: Rule
    policy: Policy
    sharding: Sharding
    workers: int
    """How many there are at first, numbered from 0."""
    updates: int
    threads: int = 1
    snapshot_every: int = 0
    """Updates between versions that are kept to be evaluated; 0: none are."""
    digest_every: int = 0
    sync_log: bool = False
    """Whether logs survive loss of power, and are seen by other machines at once."""

    @property
    def shards(self) -> int:
        return self.sharding.shards
