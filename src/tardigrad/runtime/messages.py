"""What workers and shards tell each other, and what a shard decides. Plain data, no Ray."""

from typing import Any, NamedTuple

from tardigrad.runtime.arena import Payload

NO_ROW = -1


class PushHeader(NamedTuple):
    """The header of a gradient. It always travels, with or without numbers behind it."""

    row: int
    worker: int
    step: int
    stamp: int
    read: tuple[int, ...]
    """The version of every shard in its view."""
    start_s: float
    end_s: float
    loss: float
    finite: bool
    """False: the worker found a NaN or an infinity in the gradient, and sends no numbers."""
    heard: int
    """The last release of this shard that the worker has heard, by sequence."""


class Released(NamedTuple):
    """A version for a worker: number `sequence` of this shard's releases to it."""

    worker: int
    version: int
    sequence: int
    row: int = NO_ROW
    """The row of the worker's next gradient; shard 0 hands them out."""


class Applied(NamedTuple):
    rows: tuple[int, ...]
    scale: float


class Dropped(NamedTuple):
    row: int
    reason: str


class Ticket(NamedTuple):
    """The row of a worker's next gradient, where it starts without a release of shard 0."""

    worker: int
    row: int


class Timed(NamedTuple):
    seconds: float
    token: int


class Call(NamedTuple):
    """What a worker asks of a shard, by the kinds of `Event`: push, request or ticket."""

    kind: str
    what: tuple[Any, ...]
    payload: Payload = None
    extra: tuple[Any, ...] = ()
    """Arrays beside the gradient: running buffers."""


Packed = tuple[Released | Ticket, Payload]
"""What a shard tells a worker, with the version's numbers."""

Decided = Released | Applied | Dropped | Ticket | Timed

_KINDS: dict[str, type[Any]] = {
    "release": Released,
    "apply": Applied,
    "drop": Dropped,
    "ticket": Ticket,
    "timer": Timed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class Event(NamedTuple):
    """Something that happened at a shard.

    kinds: push (a `PushHeader`), timer (token), request (worker, at_least), ticket (worker),
    join (worker), leave (worker), lost (a `PushHeader` that came to other shards only),
    replace (worker, incarnation).
    """

    kind: str
    now_s: float
    what: tuple[Any, ...]


def to_plain(decided: Decided) -> list[Any]:
    return [_NAMES[type(decided)], *decided]


def from_plain(plain: list[Any]) -> Decided:
    name, *values = plain
    decided: Decided = _KINDS[name](*values)
    return decided._replace(rows=tuple(decided.rows)) if isinstance(decided, Applied) else decided
