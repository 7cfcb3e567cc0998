"""What every actor of a run is told at its start."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import ray

from tardigrad.clusters import StepTimes
from tardigrad.core.layout import Sharding
from tardigrad.policies import Policy
from tardigrad.rules import Rule
from tardigrad.runtime.faults import Fault
from tardigrad.tasks import Task


class Place(NamedTuple):
    """Where a process is; two share memory where node and user are the same."""

    node: str
    user: int
    pid: int
    door: str = ""
    """The name of a shard's socket for processes near it; none where nothing is shared."""

    def near(self, other: "Place") -> bool:
        return (self.node, self.user) == (other.node, other.user)

    @staticmethod
    def here(door: str = "") -> "Place":
        return Place(ray.get_runtime_context().get_node_id(), os.getuid(), os.getpid(), door)


class Life(NamedTuple):
    """Who sends: which run, and which life of the sender. Messages of earlier ones are refused."""

    run: int
    incarnation: int


@dataclass(frozen=True)
class Setup:
    """The run, as sent to its actors."""

    run: int
    """Tells this run's messages from those of an earlier one, where actors are used again."""
    task: Task
    rule: Rule
    policy: Policy
    sharding: Sharding
    workers: int
    """How many there are at first, numbered from 0."""
    updates: int
    folder: Path
    began_s: float
    """The run's time 0 on the clock of `time.time`."""
    threads: int = 1
    shared_memory: bool = True
    times: StepTimes | None = None
    """Step times to impose, in seconds."""
    faults: tuple[Fault, ...] = ()
    snapshot_every: int = 0
    digest_every: int = 0
    sync_log: bool = False

    def log_path(self, shard: int) -> Path:
        return self.folder / f"shard-{shard}.log"


class Clock:
    """Seconds since the run began, never backwards."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._last_s = 0.0

    def __call__(self) -> float:
        self._last_s = max(self._last_s, time.time() - self._began_s)
        return self._last_s
