"""What a worker is in the middle of."""

from typing import Any, NamedTuple

from tardigrad.protocol.messages import NO_ROW, Released


class BegunStep(NamedTuple):
    """A gradient whose view is fixed."""

    stamp: int
    read: tuple[int, ...]
    epochs: tuple[int, ...]
    fresh: dict[int, Any]
    start_s: float
    row: int = NO_ROW


class ArrivingVersion(NamedTuple):
    """A release that is being taken."""

    shard: int
    released: Released
    before: int
    payload: Any
