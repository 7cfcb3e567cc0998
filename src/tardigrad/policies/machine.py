"""Waiting as state machines without I/O: events in, commands out; no tensors, no clock.

A policy has two halves. The *push half* lives at each shard and decides what is applied, what is
dropped and who is released; the *pull half* lives at each worker and decides when it has enough to
start. The simulator feeds them from its event queue, Ray actors from real messages; neither driver
contains any policy logic.

Time is whatever `now_s` the driver passes, counted from the start of the run; a timer comes back as
an event after all arrivals of the same instant.

Workers may leave and come back; their stays are numbered. Quotas count those present, so nothing
waits for the gone; what a worker had pushed before it left is applied as if it were there, with
nobody to answer, also when it is back by then. No group holds gradients of two stays of a worker:
the newer stay's takes the place of the other, which is dropped ("earlier stay"). Every push of a
worker that stays is answered by exactly one `Release`, except under `Partial`, which broadcasts.

A push half may interrupt a worker: `interrupting.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

from tardigrad.policies.pace import Pace

INTERRUPTED = "interrupted"
"""Why a gradient is dropped that its worker has not finished, because a shard told it to stop."""

# Each gradient makes several of these: with slots they take half the time of a named tuple.


@dataclass(slots=True)
class Arrival:
    """A gradient at a shard: its row, who computed it, the round it is stamped with, the version of
    *this* shard that it was computed at, and in which of its worker's stays."""

    row: int
    worker: int
    step: int
    stamp: int
    read: int
    stay: int = 0
    steps: int = 1
    """Batches that made it, where rows differ in them,"""
    samples: int = 0
    """and samples in it, in batches; 0: as many as steps."""


@dataclass(slots=True)
class Apply:
    """Apply these rows, in worker order, as one update at `scale` times the learning rate."""

    rows: tuple[int, ...]
    scale: float = 1.0
    weights: tuple[float, ...] = ()
    """How much each row counts; together 1. None: the mean."""


@dataclass(slots=True)
class Drop:
    """Forget this row, and say why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Send this worker the shard's current version."""

    worker: int


release = cache(Release)
"""The one of this worker: every gradient needs one, and they are all alike."""


@dataclass(slots=True)
class Start:
    """Begin the next gradient at what the worker has now, stamped with this round."""

    stamp: int


@dataclass(slots=True)
class Request:
    """Ask a shard for its version as soon as it is at least this one."""

    shard: int
    at_least: int


@dataclass(slots=True)
class SetTimer:
    """Call back with this token after so many seconds."""

    seconds: float
    token: int


@dataclass(slots=True)
class Interrupt:
    """Let this worker stop computing this step, and begin its next one.

    It names no version, and is ignored if that step has ended. The worker pushes the step's header
    without a gradient, which each shard drops ("interrupted") and answers with one release.
    """

    worker: int
    step: int


_WORKER_ORDER = attrgetter("worker", "step")

ShardCommand = Apply | Drop | Release | SetTimer | Interrupt
WorkerCommand = Start | Request | SetTimer


class PushHalf(ABC):
    """One shard's half. Drivers call the `on_` methods; policies implement the others."""

    def __init__(self, workers: Iterable[int]) -> None:
        self.members = set(workers)
        self.stays: dict[int, int] = {}
        """The stay of each worker that has come back."""
        self.version = 0
        self.requests: dict[int, int] = {}
        """The version that each worker has asked for and not got yet."""

    def on_push(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        commands = self.pushed(arrival, now_s)
        return self._answered(commands) if self.requests else commands

    def on_header(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        """A push whose gradient a link held back, to come averaged into the worker's next one; or
        any push after the shard's last version, answered so that other shards can come as far."""
        commands = self.header(arrival, now_s)
        return self._answered(commands) if self.requests else commands

    def on_interrupted(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        """A push whose gradient was not computed to the end: this shard or another interrupted its
        worker. Also after the shard's last version."""
        commands: list[ShardCommand] = [Drop(arrival.row, INTERRUPTED), *self.answer(arrival)]
        return self._answered(commands) if self.requests else commands

    def on_timer(self, token: int, now_s: float) -> list[ShardCommand]:
        return self._answered(self.timer(token, now_s))

    def on_request(self, worker: int, at_least: int, now_s: float) -> list[ShardCommand]:
        self.requests[worker] = at_least
        return self._answered(self.requested(worker, at_least, now_s))

    def on_join(
        self, worker: int, now_s: float, stay: int = 0, step: int = 0
    ) -> list[ShardCommand]:
        """step: the first that it will compute."""
        self.members.add(worker)
        if stay:
            self.stays[worker] = stay
        return self._answered([release(worker), *self.joined(worker, now_s)])

    def on_leave(self, worker: int, now_s: float) -> list[ShardCommand]:
        if worker not in self.members:
            return []  # it went again before this shard heard that it had come
        self.members.discard(worker)
        self.requests.pop(worker, None)
        return self._answered(self.left(worker, now_s))

    @abstractmethod
    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        """A gradient has arrived."""

    def requested(self, worker: int, at_least: int, now_s: float) -> list[ShardCommand]:
        """A worker waits for this version, so that it will push nothing for an earlier one."""
        return []

    def header(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        """A worker has pushed, but there is nothing to apply: answer it. A policy that counts steps
        counts this one. Only where `Policy.asynchronous`, or after the shard's last version."""
        return self.answer(arrival)

    def timer(self, token: int, now_s: float) -> list[ShardCommand]:
        """A timer set by this half has run out; its token tells whether it still matters."""
        return []

    def joined(self, worker: int, now_s: float) -> list[ShardCommand]:
        """A worker has come (it is a member already, and is released by the caller)."""
        return []

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        """A worker has gone (it is no member any more): quotas follow, nothing waits for it."""
        return []

    def present(self, arrival: Arrival) -> bool:
        """Whether its worker has not left since it pushed this."""
        worker = arrival.worker
        if not self.stays:
            return worker in self.members
        return worker in self.members and self.stays.get(worker, 0) == arrival.stay

    def answer(self, arrival: Arrival) -> list[ShardCommand]:
        """The version to who pushed this, if it is still there."""
        return [release(arrival.worker)] if self.present(arrival) else []

    def apply_one(self, arrival: Arrival) -> Apply:
        """Advance the version by an update of this gradient alone."""
        self.version += 1
        return Apply((arrival.row,))

    def apply(self, arrivals: Sequence[Arrival], scale: float = 1.0) -> Apply:
        """Advance the version by one update of these arrivals, in worker order.

        Worker order makes the result independent of the order of arrival within a group.
        """
        self.version += 1
        group = sorted(arrivals, key=_WORKER_ORDER)
        return Apply(tuple([a.row for a in group]), scale, self.weigh(group))

    def weigh(self, group: Sequence[Arrival]) -> tuple[float, ...]:
        """How much each gradient of this group counts in its update, together 1; () where all count
        the same. Where it gives any, its policy says so (`Policy.gives_weights`)."""
        return ()

    def _answered(self, commands: list[ShardCommand]) -> list[ShardCommand]:
        """With a release for everybody who has asked for a version that is there by now."""
        ready = sorted(w for w, v in self.requests.items() if v <= self.version)
        for worker in ready:
            del self.requests[worker]
        return [*commands, *map(release, ready)]


class PullHalf(ABC):
    """One worker's half. `have[s]` is the version of shard s in the worker's view."""

    waits = True
    """Whether it starts only with what shards answer; False: see `go_on`."""
    same_version = False
    """Whether it starts only when every shard has told it of one version, with which the gradient
    is stamped."""

    def __init__(self, shards: int) -> None:
        self.have = [0] * shards

    def begin(self) -> list[WorkerCommand]:
        """Every worker starts at once from version 0 of every shard."""
        return [Start(0)]

    @abstractmethod
    def pulled(self, shard: int, version: int, now_s: float) -> list[WorkerCommand]:
        """A version has come; keep it in `have` or not, and start when there is enough."""

    @abstractmethod
    def finished(self, now_s: float) -> list[WorkerCommand]:
        """The gradient has been computed and pushed."""

    def go_on(self, now_s: float) -> list[WorkerCommand]:
        """The gradient has been pushed, and what takes no time has come: one that does not wait
        starts with what it has. Drivers that cannot let it start without an answer do not call."""
        return []

    def ended(self, shard: int) -> None:
        """This shard has made its last version: `pulled` follows with it, and again whenever the
        shard answers."""
        return

    def timer(self, token: int, now_s: float) -> list[WorkerCommand]:
        return []

    @abstractmethod
    def rejoined(self) -> None:
        """The worker comes back after it had left: it waits for every shard, which releases it."""

    def replaced(self) -> list[WorkerCommand]:
        """The worker died and another is in its place, which will hear what the dead one had not
        confirmed with a push: the answer to the last push, where pushes are answered."""
        self.rejoined()
        return []


class Policy(ABC):
    """A waiting policy: a frozen dataclass that makes its two halves."""

    @property
    def needs_clock(self) -> bool:
        """Whether it sets timers, which a clockless dispatcher cannot serve."""
        return False

    @property
    def asynchronous(self) -> bool:
        """Whether a shard can answer a push without its gradient, which a link may hold back."""
        return False

    @property
    def gives_weights(self) -> bool:
        """Whether gradients of a group may count for more or less than others in its update."""
        return False

    @property
    def interrupts(self) -> bool:
        """Whether a push half commands `Interrupt`. It then has to know what workers compute at, so
        a link that holds something back is refused."""
        return False

    @property
    def needs_all(self) -> bool:
        """Whether an update needs something of every worker while nobody waits: where one never
        comes, the others go on for ever."""
        return False

    @property
    def pulls_all(self) -> bool:
        """Whether workers wait for every shard before they start."""
        return isinstance(self.pull_half(2), PullAll)

    @property
    def extends(self) -> bool:
        """Whether a run on several shards of Ray can be made longer when it has ended. What comes
        to a shard after its last update is dropped when it goes on. A worker that is ahead of other
        shards has then pushed for a round that this one still waits for."""
        return self.asynchronous or self.pulls_all

    def pace(self, steps: int) -> Pace | None:
        """What decides on the steps of each row, where the work takes so many; None: it always
        takes them all."""
        return None

    def check(self, workers: int, shards: int) -> None:
        """Raise ValueError where the policy cannot work with so many workers and shards."""
        return

    @abstractmethod
    def push_half(self, workers: Iterable[int]) -> PushHalf: ...

    def pull_half(self, shards: int) -> PullHalf:
        return PullAll(shards)


class PullAll(PullHalf):
    """Wait for every shard's answer; with `same_version`, until all are of one version."""

    def __init__(self, shards: int, same_version: bool = False) -> None:
        super().__init__(shards)
        self.same_version = same_version
        self._newest = 0  # the maximum of `have`
        self._all = (1 << shards) - 1
        self._awaited = 0  # a bit for each shard that has not answered

    def pulled(self, shard: int, version: int, now_s: float) -> list[WorkerCommand]:
        have, awaited, bit = self.have, self._awaited, 1 << shard
        if version > have[shard]:
            have[shard] = version
            if version > self._newest:
                self._newest = version
        if not awaited & bit:
            return []
        self._awaited = awaited = awaited ^ bit
        if awaited:
            return []
        newest = self._newest
        if self.same_version and have.count(newest) < len(have):
            behind = [s for s, v in enumerate(have) if v < newest]
            self._awaited = sum(1 << s for s in behind)
            return [Request(s, newest) for s in behind]
        return [Start(newest)]

    def finished(self, now_s: float) -> list[WorkerCommand]:
        self._awaited = self._all
        return []

    def rejoined(self) -> None:
        self._awaited = self._all
