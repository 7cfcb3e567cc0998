"""What every actor of a run is told at its start."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import ray

from tardigrad.clusters import StepTimes
from tardigrad.core.computer import computer
from tardigrad.recording.setup import RunSetup
from tardigrad.runtime.faults import Fault
from tardigrad.transport.listener import ListenerAddress


class ActorPlace(NamedTuple):
    """Where a process is; two share memory where node and user are the same."""

    node: str
    user: int
    pid: int
    host: str
    """The node's own address."""
    listener: ListenerAddress | None = None
    """Where workers find a shard."""
    computer: str = ""
    """What its numbers are computed on."""

    def near(self, other: "ActorPlace") -> bool:
        return (self.node, self.user) == (other.node, other.user)

    @staticmethod
    def here() -> "ActorPlace":
        context = ray.get_runtime_context()
        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return ActorPlace(
            context.get_node_id(), os.getuid(), os.getpid(), host, computer=computer()
        )


@dataclass(frozen=True)
class RaySetup:
    """The run, as sent to its actors."""

    run: RunSetup
    folder: Path
    secret: bytes
    """What lets processes of this run in at each other's listeners."""
    began_s: float
    """The run's time 0 on the clock of `time.time`."""
    shared_memory: bool = True
    times: StepTimes | None = None
    """Step times to impose, in seconds; a row takes those of all its steps."""
    faults: tuple[Fault, ...] = ()


class RunClock:
    """Seconds since the run began, never backwards."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._last_s = 0.0

    def __call__(self) -> float:
        self._last_s = max(self._last_s, time.time() - self._began_s)
        return self._last_s
