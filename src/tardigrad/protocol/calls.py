"""What a run's driver asks of shards and workers, and what it has done for it by its shell.

Every call may be made again: what has been done already is not done twice.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from tardigrad.protocol.channels import ShardBeginning
from tardigrad.protocol.messages import PushHeader
from tardigrad.protocol.worker_session import WorkerStart


class Process(NamedTuple):
    kind: Literal["shard", "worker"]
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


# Asked of a shard.


class ReplaceWorker(NamedTuple):
    """Another process is this worker now. The answer is a `ChannelEnd`."""

    worker: int
    life: int
    settled: int = 0
    """What lives before this one had pushed to some shards, all shards have got."""


class CompleteRow(NamedTuple):
    """A dead worker's gradient that other shards have, computed again."""

    header: PushHeader
    gradient: Any
    """This shard's slice and the buffers beside it; None where it was not finite."""


class JoinWorker(NamedTuple):
    worker: int
    life: int


class LeaveWorker(NamedTuple):
    worker: int


class FenceShard(NamedTuple):
    """From now on, views of this shard's earlier processes do not count."""

    shard: int
    epoch: int


class ReinstateShard(NamedTuple):
    """It goes on from this row, and from what it has released to each worker."""

    shard: int
    epoch: int
    rows: int
    released: tuple[tuple[int, int], ...]


class OpenShard(NamedTuple):
    """All know of this process: from now on it hears workers, until it has made so many updates."""

    updates: int


class HoldReleases(NamedTuple):
    """Keep releases back until told to go on."""

    held: bool


class SaveCut(NamedTuple):
    """Save this shard's part of a cut. The answer is a `CutPlace`."""

    number: int


class TakeSnapshots(NamedTuple):
    """Versions to evaluate. Those up to `done` have been, and are forgotten; those up to `known`
    are not told again."""

    done: int
    known: int


class FinishShard(NamedTuple):
    """Its numbers at the end."""

    closes: bool = False
    """Whether it hears no worker and no timer any more, because they would go on."""


class AskShard(NamedTuple):
    """How it stands. The answer's first field is its version."""


ShardCall = (
    ReplaceWorker
    | CompleteRow
    | JoinWorker
    | LeaveWorker
    | FenceShard
    | ReinstateShard
    | OpenShard
    | HoldReleases
    | SaveCut
    | TakeSnapshots
    | FinishShard
    | AskShard
)


# Asked of a worker.


class BeginWork(NamedTuple):
    start: WorkerStart
    kept: Any = None
    """What the process before it kept for itself, where it goes on with that."""


class MeetShard(NamedTuple):
    """A shard is another process now. The answer is False where this life cannot go on."""

    shard: int
    began: ShardBeginning


class HoldSteps(NamedTuple):
    """Start nothing until told to go on."""

    held: bool


class AskWorker(NamedTuple):
    """How it stands. The answer is a `WorkerStatus`."""


class StopWork(NamedTuple):
    """Start nothing more."""


class TakeUnsent(NamedTuple):
    """Gradients that are to be merged into a later push, by row."""


class TakeState(NamedTuple):
    """What its work keeps from row to row, with the worker's number; None: nothing yet."""


WorkerCall = BeginWork | MeetShard | HoldSteps | AskWorker | StopWork | TakeUnsent | TakeState


# What the coordinator has done for it: each is yielded, and what is sent back stands behind it.


class Ask(NamedTuple):
    """Make calls side by side; a list of `CallOutcome`s, in their order."""

    calls: Sequence[tuple[Process, ShardCall | WorkerCall]]
    limit_s: float


class MakeShards(NamedTuple):
    """Start these shards' processes from what was recovered; a list of `CallOutcome`s."""

    epochs: dict[int, int]
    recovered: Any
    held: bool


class MakeWorkers(NamedTuple):
    """Start processes for these workers; a list of `CallOutcome`s."""

    workers: Sequence[int]
    limit_s: float


class EndProcess(NamedTuple):
    """Make sure that it does nothing more, as far as it can be reached; None."""

    process: Process


class TakeEpoch(NamedTuple):
    """An int."""

    purpose: str


class Recover(NamedTuple):
    """What the logs tell: a `RecoveredRun`."""


class NextCut(NamedTuple):
    """The number of a new cut."""


class FinishCut(NamedTuple):
    number: int
    places: Sequence[Any]
    unsent: Sequence[Any] = ()
    """What each worker answered to `TakeUnsent`,"""
    states: Sequence[Any] = ()
    """and to `TakeState`."""


class WaitForDeaths(NamedTuple):
    """Wait so long, or until a process has died; the `Dead` ones."""

    seconds: float


class Tell(NamedTuple):
    """Something that whoever looks at the run should know; None."""

    text: str


class Show(NamedTuple):
    """How the run stands, with what shards and workers answered; None."""

    shards: Sequence[Any]
    workers: dict[int, Any]
    snapshots: Sequence[Sequence[Any]]
    """Versions to evaluate, each as a list of all shards' parts."""


Effect = (
    Ask
    | MakeShards
    | MakeWorkers
    | EndProcess
    | TakeEpoch
    | Recover
    | NextCut
    | FinishCut
    | WaitForDeaths
    | Tell
    | Show
)


class Answer(NamedTuple):
    value: Any


class Dead(NamedTuple):
    """The process has ended, or cannot be reached for longer than one that lives may be."""

    process: Process
    why: str


CallOutcome = Answer | Dead
