"""What a worker's session has done for it: whoever drives it carries these out."""

from typing import Any, NamedTuple

from tardigrad.protocol.messages import Deal, FromWorker


class Send(NamedTuple):
    """Tell a shard; a push of a finite gradient that crosses has its numbers behind it."""

    shard: int
    message: FromWorker


class Compute(NamedTuple):
    """Compute a gradient at the view that these payloads complete."""

    row: int
    step: int
    stamp: int
    read: tuple[int, ...]
    fresh: dict[int, Any]
    """Payloads of versions that came since the last start, by shard."""
    start_s: float
    deal: Deal | None = None


class Discard(NamedTuple):
    """A payload that is not needed."""

    payload: Any


class Forget(NamedTuple):
    """Every shard has this gradient in its log, or what it was merged into."""

    row: int


class StopComputing(NamedTuple):
    """A shard interrupts the gradient that is being computed: `computed` is to follow soon."""


class WorkerTimer(NamedTuple):
    seconds: float
    token: int


WorkerOutput = Send | Compute | Discard | Forget | WorkerTimer | StopComputing
