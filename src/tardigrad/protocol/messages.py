"""What workers and shards tell each other, what happens at a shard, and what it decides.

Plain data. `life` counts the processes that have been a worker, one after the other; `epoch` is the
number under which a shard's process was made, and grows with every one of them in a run.
"""

from typing import NamedTuple

NO_ROW = -1
NO_STEP = -1

NOT_FINITE = "not finite"
"""Why a gradient is dropped that its worker has not sent, because it was NaN or infinite."""

AFTER_END = "after the end"
"""Why a gradient is dropped that came to a shard after its last update, where the run went on."""


class Deal(NamedTuple):
    """The batches of a row, where policies let rows differ in them."""

    steps: int
    """How many;"""
    first: int
    """the first one's place in the deal to all workers,"""
    own: int
    """and in the worker's own sequence."""


class PushHeader(NamedTuple):
    """The header of a gradient. It always travels, with or without numbers behind it."""

    row: int
    worker: int
    step: int
    stamp: int
    read: tuple[int, ...]
    """The version of every shard in its view,"""
    epochs: tuple[int, ...]
    """and the epoch of the process that gave it."""
    start_s: float
    end_s: float
    loss: float
    finite: bool
    """False: the worker found a NaN or an infinity in the gradient, and sends no numbers."""
    crosses: bool = True
    """False: a link holds the numbers back from this shard."""
    merged: tuple[int, ...] = ()
    """Rows that were held back from this shard before; what crosses is the mean of them all."""
    deviations: tuple[float, ...] = ()
    """The deviation of each shard as the worker last heard it, where a link goes by it."""
    fresh: bool = False
    """Whether what the worker keeps for itself was as it begins when it computed this."""
    interrupted: bool = False
    """True: the worker was told to stop before it pushed, and sends no numbers. Its loss is NaN."""
    deal: Deal | None = None
    """None: it has as many batches as the work always takes."""

    @property
    def steps(self) -> int:
        """How many batches it is of, where rows differ in them; else 1."""
        return 1 if self.deal is None else self.deal.steps

    @property
    def has_numbers(self) -> bool:
        return self.finite and self.crosses and not self.interrupted


class VersionRequest(NamedTuple):
    """Asks for a shard's version as soon as it is at least this one."""

    at_least: int


class RowRequest(NamedTuple):
    """Asks shard 0 for the row of this step, which starts without a release of shard 0."""

    step: int


class Confirmation(NamedTuple):
    """Says nothing but what stands in every message: what was heard and is kept."""


WorkerBody = PushHeader | VersionRequest | RowRequest | Confirmation


class FromWorker(NamedTuple):
    """A worker's message to a shard: number `number` of this life. A shard takes them in order."""

    worker: int
    life: int
    number: int
    heard: int
    """The last release of this shard that the worker has taken."""
    at: int
    """The version of this shard that it is computing at, or else has;"""
    have: int
    """and the one it has. What was heard and is neither, it will not read again."""
    body: WorkerBody


class Hello(NamedTuple):
    """Asks a shard to say again what this worker has not heard. Not logged."""

    worker: int
    life: int
    heard: int


class Released(NamedTuple):
    """A version for a worker: number `sequence` of this shard's releases to it."""

    worker: int
    sequence: int
    version: int
    carries: bool = True
    """False: a link holds the numbers back, so that it only tells of the version."""


class FromShard(NamedTuple):
    """A shard's message to a worker: an acknowledgement, a row, releases, or all of them."""

    shard: int
    epoch: int
    worker: int
    life: int
    acked: int
    """The last of the worker's messages that is in the log."""
    step: int
    row: int
    """The row of that step, where it has been given."""
    releases: tuple[Released, ...]
    deviations: tuple[float, ...] = ()
    """The shard's deviation as it was at each of these releases, where a link goes by it."""
    stop: int = NO_STEP
    """The step that the worker is to stop computing, if it has not pushed it."""
    sequence: int = -1
    """The last release to it: whoever has heard of a later one need not stop."""
    deal: Deal | None = None
    """Of that row."""


# What is decided at a shard.


class Applied(NamedTuple):
    rows: tuple[int, ...]
    scale: float
    weights: tuple[float, ...] = ()
    """Of each row, where they differ."""


class Dropped(NamedTuple):
    row: int
    reason: str


class RowGiven(NamedTuple):
    """The row of a worker's next gradient; shard 0 hands them out."""

    worker: int
    step: int
    row: int
    deal: Deal | None = None


class TimerSet(NamedTuple):
    seconds: float
    token: int


class WorkerInterrupted(NamedTuple):
    """This worker is told to stop computing this step. It may not hear of it in time: the header of
    its push tells what became of the step."""

    worker: int
    step: int


Decision = Released | Applied | Dropped | RowGiven | TimerSet | WorkerInterrupted


# What happens at a shard, as it is logged.


class Came(NamedTuple):
    """A worker's message."""

    message: FromWorker


class Rang(NamedTuple):
    """A timer has run out."""

    token: int


class Joined(NamedTuple):
    worker: int
    life: int


class Left(NamedTuple):
    worker: int


class Replaced(NamedTuple):
    """Another process is the worker now; messages of earlier ones are void."""

    worker: int
    life: int
    settled: int = 0
    """What lives before this one had pushed to some shards, all shards have got."""


class Completed(NamedTuple):
    """A dead worker's gradient that other shards have, computed again for this one."""

    header: PushHeader


class Fenced(NamedTuple):
    """A shard is being replaced by the process of this epoch: no view of an earlier one counts."""

    shard: int
    epoch: int


class Reinstated(NamedTuple):
    """It is there, and goes on from here; what its predecessor did behind it does not count."""

    shard: int
    epoch: int
    rows: int
    """How many rows it has given so far (shard 0)."""
    released: tuple[tuple[int, int], ...]
    """(worker, version): the newest that it has released to each worker to compute at. The version
    alone may be newer: a release can be lost with a log's end, and what it released be there."""


class Extended(NamedTuple):
    """The run is to have so many updates in all, more than it was begun with."""

    updates: int


Event = Came | Rang | Joined | Left | Replaced | Completed | Fenced | Reinstated | Extended

MEMBERSHIP = (Joined, Left)
