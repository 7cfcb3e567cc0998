"""How the processes of a run stand, as they and the driver tell each other."""

from typing import Any, NamedTuple

from tardigrad.runtime.setup import Place


class WorkerAddress(NamedTuple):
    """What a shard must know of a worker to reach it."""

    handle: Any
    incarnation: int
    place: Place


class End(NamedTuple):
    """A shard's end of a channel, for whoever takes a worker's place or waits for silence."""

    received: int
    heard: int
    sent: int
    last: tuple[Any, ...] | None
    """The header of the last push that came."""


class ShardStatus(NamedTuple):
    version: int
    queue: int
    bytes_in: int
    bytes_out: int
    received: dict[int, int]
    dropped: dict[int, int]
    delays: dict[int, tuple[int, int]]
    """Per worker: gradients applied, and the sum of their delays."""


class Where(NamedTuple):
    """Where a worker stands; `idle`: it will do nothing until a shard releases it."""

    idle: bool
    pushed: int
    heard: tuple[int, ...]
    steps: int
    busy_s: float
    late_steps: int
