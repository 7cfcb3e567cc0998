"""One shard's control without tensors and without I/O: events in, decisions out.

Everything here is a function of the events alone, so feeding a shard's log again gives the same
control, decision by decision. That is how a lost shard comes back, and why cuts need not save the
state of a policy.

Beside the policy's push half it keeps the channel to each worker (which step came last, which
releases it may still need), and, at shard 0, the *tickets*: the row of each worker's next
gradient, given with the release that lets it start. Rows are therefore numbered in the order in
which shard 0 releases them, which is the order of starts but for the time a message takes; it is
fixed at the start because tasks deal out samples by it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from tardigrad.policies import Apply, Arrival, Drop, Policy, Release
from tardigrad.policies.machine import ShardCommand
from tardigrad.runtime.messages import (
    NO_ROW,
    Applied,
    Decided,
    Dropped,
    Event,
    PushHeader,
    Released,
    Ticket,
    Timed,
)

NOT_FINITE = "not finite"
LOST = "lost with its worker"


class Refused(ValueError):
    """A push that no correct worker sends."""


class Control:
    """`rows` are the headers that came and are neither applied nor dropped yet."""

    def __init__(
        self, policy: Policy, shard: int, shards: int, workers: Iterable[int], updates: int
    ) -> None:
        members = sorted(workers)
        self.shard = shard
        self.shards = shards
        self.updates = updates
        self.half = policy.push_half(members)
        self.rows: dict[int, PushHeader] = {}
        self.timers: list[tuple[int, float]] = []
        """(token, due at) of every timer that has not run out."""
        self.readers: Counter[int] = Counter()
        """How many workers may still compute at a version that was sent."""
        self.received: dict[int, int] = {}
        """The last step that came from each worker."""
        self.heard: dict[int, int] = {}
        self.releases: dict[int, list[Released]] = {}
        """To each worker, those it may still compute at or has not confirmed."""
        self.incarnation: dict[int, int] = {}
        self._sequence: dict[int, int] = {}
        self._tickets: dict[int, tuple[int, int]] = {}
        self._next_row = 0
        for worker in members:
            self._welcome(worker)
            self._released(worker, 0)

    @property
    def version(self) -> int:
        return self.half.version

    @property
    def members(self) -> set[int]:
        return self.half.members

    @property
    def done(self) -> bool:
        return self.version >= self.updates

    def check(self, push: PushHeader) -> None:
        """Refuse what cannot be, by name; nothing has changed yet."""
        who = f"worker {push.worker}, step {push.step}, at shard {self.shard}"
        if push.worker not in self.received:
            raise Refused(f"push refused: {who}: no such worker has joined")
        expected = self.received[push.worker] + 1
        if push.step != expected:
            raise Refused(f"push refused: {who}: its next step is {expected}")
        if len(push.read) != self.shards:
            raise Refused(
                f"push refused: {who}: it names {len(push.read)} versions for {self.shards} shards"
            )
        read = push.read[self.shard]
        sent = {released.version for released in self.releases[push.worker]}
        if read not in sent:
            raise Refused(
                f"push refused: {who}: it says it read version {read}, but this shard is at "
                f"version {self.version} and has sent it {sorted(sent)}"
            )

    def decide(self, event: Event) -> list[Decided]:
        """What follows from this event, in order; the control is then as after it."""
        kind, now_s, what = event
        if kind == "push":
            return self._pushed(PushHeader(*what), now_s)
        if kind == "timer":
            (token,) = what
            self.timers.remove(next(timer for timer in self.timers if timer[0] == token))
            commands = [] if self.done else self.half.on_timer(token, now_s)
            return self._decided(commands, now_s)
        if kind == "request":
            worker, at_least = what
            return self._decided(self.half.on_request(worker, at_least, now_s), now_s)
        if kind == "ticket":
            (worker,) = what
            return [Ticket(worker, self._ticket(worker))]
        if kind == "join":
            (worker,) = what
            self._welcome(worker)
            return self._decided(self.half.on_join(worker, now_s), now_s)
        if kind == "leave":
            (worker,) = what
            for released in self.releases.pop(worker, []):
                self._forget(released.version)
            del self.received[worker]
            return self._decided(self.half.on_leave(worker, now_s), now_s)
        if kind == "replace":
            worker, incarnation = what
            self.incarnation[worker] = incarnation
            return []
        if kind == "lost":
            return [Dropped(PushHeader(*what).row, LOST)]
        raise ValueError(f"unknown event {kind!r}")

    def _pushed(self, push: PushHeader, now_s: float) -> list[Decided]:
        worker = push.worker
        self.received[worker], self.heard[worker] = push.step, push.heard
        read = push.read[self.shard]
        kept = []
        for released in self.releases[worker]:
            if released.sequence <= push.heard and released.version < read:
                self._forget(released.version)
            else:
                kept.append(released)
        self.releases[worker] = kept
        if not push.finite:
            # The policy never hears of it: the worker tries its next batch at the same view.
            ticket = [Ticket(worker, self._ticket(worker))] if self.shard == 0 else []
            return [Dropped(push.row, NOT_FINITE), *ticket]
        arrival = Arrival(push.row, worker, push.step, push.stamp, read)
        if self.done:
            return self._decided(self.half.on_header(arrival, now_s), now_s)
        self.rows[push.row] = push
        return self._decided(self.half.on_push(arrival, now_s), now_s)

    def _decided(self, commands: Sequence[ShardCommand], now_s: float) -> list[Decided]:
        # A release carries the version as of its place among the commands, before or after Apply.
        version = self.version - sum(isinstance(c, Apply) for c in commands)
        out: list[Decided] = []
        for command in commands:
            if isinstance(command, Apply):
                version += 1
                for row in command.rows:
                    del self.rows[row]
                out.append(Applied(command.rows, command.scale))
            elif isinstance(command, Drop):
                del self.rows[command.row]
                out.append(Dropped(command.row, command.reason))
            elif isinstance(command, Release):
                if command.worker not in self.received:
                    continue  # it has left in the meantime
                out.append(self._released(command.worker, version))
            else:
                self.timers.append((command.token, now_s + command.seconds))
                out.append(Timed(command.seconds, command.token))
        return out

    def _welcome(self, worker: int) -> None:
        self.received[worker] = self.heard[worker] = -1
        self.incarnation.setdefault(worker, 0)
        self.releases[worker] = []
        self._sequence[worker] = -1

    def _released(self, worker: int, version: int) -> Released:
        self._sequence[worker] += 1
        released = Released(worker, version, self._sequence[worker], self._ticket(worker))
        self.releases[worker].append(released)
        self.readers[version] += 1
        return released

    def _ticket(self, worker: int) -> int:
        """The row of this worker's next gradient: given once, told as often as needed."""
        if self.shard != 0:
            return NO_ROW
        step = self.received[worker] + 1
        given = self._tickets.get(worker)
        if given is None or given[0] != step:
            given = (step, self._next_row)
            self._tickets[worker] = given
            self._next_row += 1
        return given[1]

    def _forget(self, version: int) -> None:
        self.readers[version] -= 1
        if not self.readers[version]:
            del self.readers[version]
