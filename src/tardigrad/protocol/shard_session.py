"""A shard among processes that die and a network that loses, repeats and delays.

Its state is a function of the events it has handled, so feeding a shard's log again gives the same
state, decision by decision. Whoever drives it logs an event with its decisions before anything that
follows from it leaves; what is to be said to a worker can then be asked for as often as needed.

To each worker there is a channel in each direction. A worker's messages are numbered, and taken in
order. Releases are numbered too, and the worker takes them in order. At most `WINDOW` of them are
on their way: a worker that hears nothing gets the newest version when it does, and pins no more.

At shard 0 it hands out *rows*: the number of each worker's next gradient, told with the release
that lets it start, or when asked. Rows are numbered in the order in which shard 0 gives them, which
is the order of starts but for the time a message takes.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from tardigrad.links import UNSENT
from tardigrad.policies import Arrival, Policy
from tardigrad.policies.pace import Pace
from tardigrad.protocol.admission import Admission, Fences, Refused
from tardigrad.protocol.channels import ChannelEnd, WorkerChannel
from tardigrad.protocol.gates import ShardGate
from tardigrad.protocol.messages import (
    AFTER_END,
    NO_ROW,
    NO_STEP,
    NOT_FINITE,
    Applied,
    Came,
    Completed,
    Confirmation,
    Decision,
    Dropped,
    Event,
    Extended,
    Fenced,
    FromShard,
    FromWorker,
    Joined,
    Left,
    PushHeader,
    Rang,
    Reinstated,
    Released,
    Replaced,
    RowGiven,
    RowRequest,
    TimerSet,
    VersionRequest,
    WorkerInterrupted,
)
from tardigrad.protocol.rows import RowsGiven
from tardigrad.protocol.shard import ShardControl, ShardOutputs

WINDOW = 3
"""Releases to a worker that it may not have heard. One that starts a step, one that came during it,
one on its way: fewer would hold up policies that broadcast; each pins a version."""


class ShardSession:
    """`rows` are the headers that came and are neither applied nor dropped yet."""

    def __init__(
        self,
        policy: Policy,
        shard: int,
        shards: int,
        workers: Iterable[int],
        updates: int,
        gate: ShardGate | None = None,
        pace: Pace | None = None,
    ) -> None:
        """gate: what a link lets through; None: everything. pace: what decides on rows' steps."""
        members = sorted(workers)
        self.shard = shard
        self.shards = shards
        self.control = ShardControl(policy, shard, members, updates, self._outputs())
        self.gate = gate
        self.rows: dict[int, PushHeader] = {}
        self.settled: dict[int, PushHeader] = {}  # by the last event
        self._copies: Counter[int] = Counter()
        """How often more than once each of them waits: a link lets one be applied again."""
        self._first = frozenset(members)
        """Workers that begin at version 0, without a release."""
        self.timers: list[tuple[int, float]] = []
        """(token, due at) of every timer that has not run out."""
        self._late_rows: list[int] = []
        """Gradients that came after the last update,"""
        self._late_timers: list[int] = []
        """and timers that ran out: a run that is extended goes on from there."""
        self.channels: dict[int, WorkerChannel] = {}
        self.lives: dict[int, int] = {}
        """Of every worker that ever was."""
        self.readers: Counter[int] = Counter()
        """How many releases that are kept a version stands in: it may still be computed at."""
        self._fences = Fences(shards)
        self._given = RowsGiven(pace)
        self._decided: list[Decision] = []
        for worker in members:
            self._welcome(worker, 0)
            self._release(worker, self.channels[worker], 0, carries=True)
        self._decided = []

    def _outputs(self) -> ShardOutputs:
        return ShardOutputs(
            applied=self._applied,
            dropped=self._dropped,
            released=self._released,
            timer=self._timer_set,
            ended=lambda shard: None,
            interrupted=self._interrupted,
        )

    @property
    def version(self) -> int:
        return self.control.version

    @property
    def updates(self) -> int:
        assert self.control.updates is not None
        return self.control.updates

    @property
    def done(self) -> bool:
        return self.control.done

    @property
    def rows_given(self) -> int:
        return self._given.rows

    # What comes in.

    def admit(self, message: FromWorker) -> Admission:
        """Whether a message is to be handled. Refuses what cannot be; nothing changes."""
        channel = self.channels.get(message.worker)
        if channel is None or message.life != channel.life:
            return Admission.VOID
        if message.number <= channel.number:
            return Admission.AGAIN
        if message.number > channel.number + 1:
            return Admission.VOID
        if isinstance(message.body, PushHeader):
            if not self._fences.admit(message.body):
                return Admission.VOID
            self._check(message.body, channel)
        return Admission.NEW

    def _check(self, push: PushHeader, channel: WorkerChannel) -> None:
        who = f"worker {push.worker}, step {push.step}, at shard {self.shard}"
        if push.step != channel.step + 1:
            raise Refused(f"push refused: {who}: its next step is {channel.step + 1}")
        if len(push.read) != self.shards:
            raise Refused(
                f"push refused: {who}: it names {len(push.read)} versions for {self.shards} shards"
            )
        alone = None if push.crosses and not push.merged else "this run has no link"
        wrong = alone if self.gate is None else self.gate.wrong(push)
        if wrong is not None:
            raise Refused(f"push refused: {who}: {wrong}")
        read = push.read[self.shard]
        kept = {released.version for released in channel.kept if released.carries}
        if read not in kept:
            raise Refused(
                f"push refused: {who}: it says it read version {read}, but this shard is at "
                f"version {self.version} and has sent it {sorted(kept)}"
            )

    def handle(self, event: Event, now_s: float) -> list[Decision]:
        """What follows from this event, in order; the session is then as after it."""
        decided: list[Decision] = []
        self._decided, self.settled = decided, {}
        match event:
            case Came(message):
                self._came(message, now_s)
            case Rang(token):
                self.timers.remove(next(timer for timer in self.timers if timer[0] == token))
                if self.done:
                    self._late_timers.append(token)
                else:
                    self.control.timer(token, now_s)
            case Joined(worker, life):
                self._welcome(worker, life)
                if self.gate is not None:
                    self.gate.refresh(worker)
                self.control.join(worker, now_s)
            case Left(worker):
                self._drop_unsent(worker)
                self._given.left(worker)
                for released in self.channels.pop(worker).kept:
                    self._unread(released)
                self.control.leave(worker, now_s)
            case Replaced(worker, life, settled):
                self._replaced(self.channels[worker], life)
                self.lives[worker] = life
                self._replaced_behind_gate(worker, settled, now_s)
            case Completed(header):
                channel = self.channels[header.worker]
                if header.finite:  # else the new life begins at the same release, see `_pushed`
                    self._read_by_the_dead(header, channel)
                self._pushed(header, channel, now_s)
                # Later ones of its gradients may have to be completed too.
                self._forget_heard(channel, range(header.read[self.shard], self.version + 1))
            case Fenced(shard, epoch):
                self._fences.fence(shard, epoch)
            case Reinstated():
                self._fences.reinstate(event)
            case Extended(updates):
                self._extended(updates, now_s)
        return decided

    def _extended(self, updates: int, now_s: float) -> None:
        """Go on from the last update. What was pushed since has been answered, so that other shards
        came as far; here it is dropped."""
        self.control.updates = updates
        self._decided += [Dropped(row, AFTER_END) for row in self._late_rows]
        rang, self._late_rows, self._late_timers = self._late_timers, [], []
        for token in rang:
            self.control.timer(token, now_s)

    def _read_by_the_dead(self, header: PushHeader, channel: WorkerChannel) -> None:
        """What a dead worker's gradient was computed at, its next life need not hear."""
        if self.gate is None:
            read = header.read[self.shard]
            heard = [r.sequence for r in channel.kept if r.version == read]
            channel.heard = max([channel.heard, *heard])
            return
        # What was released before answers something else; of this life, nobody has heard it.
        for released in channel.take(channel.life_from, channel.sequence + 1):
            self._unread(released)
        channel.heard = channel.sequence
        self.gate.refresh(header.worker)

    def _came(self, message: FromWorker, now_s: float) -> None:
        channel = self.channels[message.worker]
        channel.number, channel.heard = message.number, max(channel.heard, message.heard)
        match message.body:
            case PushHeader() as push:
                self._pushed(push, channel, now_s)
            case VersionRequest(at_least):
                self.control.request(message.worker, at_least, now_s)
            case RowRequest():
                self._give_row(message.worker, channel)
            case Confirmation():
                pass
        self._forget_heard(channel, (message.at, message.have))
        if channel.waiting and channel.sequence - channel.heard < WINDOW:
            self._released(self.shard, message.worker, self.version, now_s)

    def _forget_heard(self, channel: WorkerChannel, needed: Container[int]) -> None:
        """Releases that were heard, but the last, and the newest at each version that is needed."""
        heard, kept = channel.heard, channel.kept
        newest = {r.version: r.sequence for r in kept if r.carries and r.sequence <= heard}
        channel.kept = []
        for released in kept:
            pins = released.version in needed and newest.get(released.version) == released.sequence
            if pins or released.sequence > heard or released.sequence == channel.sequence:
                channel.kept.append(released)
            else:
                self._unread(released)

    def _pushed(self, push: PushHeader, channel: WorkerChannel, now_s: float) -> None:
        channel.step, channel.last, channel.stop = push.step, push, NO_STEP
        self._given.heard(push)
        if not push.finite:
            # The policy never hears of it: the worker tries its next batch at the same view. Nor is
            # it answered by a release; another life begins at the one that this life began at.
            self._decided.append(Dropped(push.row, NOT_FINITE))
            self._give_row(push.worker, channel)
            return
        channel.answered_from = channel.sequence + 1
        arrival = Arrival(push.row, push.worker, push.step, push.stamp, push.read[self.shard])
        if push.interrupted:
            self.rows[push.row] = push
            self.control.interrupted(arrival, now_s)
            return
        applied = push if self.gate is None else self.gate.arrive(push)
        if self.done or applied is None:
            if self.done and push.crosses:
                self._late_rows.append(push.row)
            self.control.header(arrival, now_s)
            return
        # The header is this round's; what is applied, and how late it is, may be an older one's.
        arrival.row, arrival.read = applied.row, applied.read[self.shard]
        arrival.steps = applied.steps
        if applied.row in self.rows:
            self._copies[applied.row] += 1
        self.rows[applied.row] = applied
        self.control.push(arrival, now_s)

    @staticmethod
    def _replaced(channel: WorkerChannel, life: int) -> None:
        """The new process hears what the old one had not confirmed; and the last answer to its last
        push, even if confirmed, because the old one cannot have pushed what it computed at it."""
        channel.life, channel.number = life, -1
        if channel.sequence >= channel.answered_from:
            channel.heard = min(channel.heard, channel.sequence - 1)

    def _replaced_behind_gate(self, worker: int, settled: int, now_s: float) -> None:
        """The new process has no version to compute at, and what it is to hear may carry none: so
        it hears one release instead, which does."""
        self._drop_unsent(worker)
        channel = self.channels[worker]
        channel.life_from = channel.sequence + 1
        if self.gate is None or (worker in self._first and channel.step < 0):
            return
        for released in channel.settle(settled):
            self._unread(released)
        due = channel.sequence > channel.heard
        channel.heard = channel.sequence
        if due:
            self._released(self.shard, worker, self.version, now_s)

    def _drop_unsent(self, worker: int) -> None:
        if self.gate is not None:
            self._decided += [Dropped(row, UNSENT) for row in self.gate.begin_anew(worker)]

    def may_need(self, row: int) -> bool:
        """Whether this gradient waits to be applied, or may be applied again."""
        return row in self.rows or (self.gate is not None and self.gate.may_repeat(row))

    # What is decided.

    def _settle(self, row: int) -> None:
        self.settled[row] = self.rows[row]
        if row in self._copies:
            self._copies -= Counter((row,))  # which forgets what comes to nothing
        else:
            del self.rows[row]

    def _applied(
        self, _: int, rows: Sequence[int], scale: float, __: float, weights: tuple[float, ...]
    ) -> None:
        for row in rows:
            self._settle(row)
        self._decided.append(Applied(tuple(rows), scale, weights))

    def _dropped(self, shard: int, row: int, reason: str, now_s: float) -> None:
        self._settle(row)
        self._decided.append(Dropped(row, reason))

    def _released(self, shard: int, worker: int, version: int, now_s: float) -> None:
        channel = self.channels.get(worker)
        if channel is None:
            return  # it has left in the meantime
        if channel.sequence - channel.heard >= WINDOW:
            channel.waiting = True
            return
        self._release(worker, channel, version, self.gate is None or self.gate.carries(worker))

    def _release(self, worker: int, channel: WorkerChannel, version: int, carries: bool) -> None:
        channel.waiting, channel.stop = False, NO_STEP
        channel.sequence += 1
        released = Released(worker, channel.sequence, version, carries)
        channel.kept.append(released)
        self.readers[version] += carries
        self._decided.append(released)
        self._give_row(worker, channel)

    def _unread(self, released: Released) -> None:
        self.readers[released.version] -= released.carries
        if not self.readers[released.version]:
            del self.readers[released.version]

    def _interrupted(self, shard: int, worker: int, step: int, now_s: float) -> None:
        """The policy does not count steps that were not finite: it is the one after the last."""
        channel = self.channels[worker]
        channel.stop = channel.step + 1
        self._decided.append(WorkerInterrupted(worker, channel.stop))

    def _timer_set(self, shard: int, seconds: float, token: int, now_s: float) -> None:
        self.timers.append((token, now_s + seconds))
        self._decided.append(TimerSet(seconds, token))

    def _give_row(self, worker: int, channel: WorkerChannel) -> None:
        given = self._given.give(worker, channel.step + 1) if self.shard == 0 else None
        if given is not None:
            self._decided.append(given)

    def _welcome(self, worker: int, life: int) -> None:
        self.channels[worker] = WorkerChannel(life)
        self.lives[worker] = life

    # What goes out.

    def answer(self, epoch: int, worker: int, after: int | None) -> FromShard:
        """What to tell a worker: what is acknowledged, its row, and its releases after number
        `after`; None: no releases."""
        channel = self.channels[worker]
        releases: tuple[Released, ...] = ()
        if after is not None:
            releases = tuple(r for r in channel.kept if r.sequence > max(after, channel.heard))
        row = self._given.of(worker) or RowGiven(worker, -1, NO_ROW)
        head = (self.shard, epoch, worker, channel.life, channel.number, row.step, row.row)
        return FromShard(*head, releases, (), channel.stop, channel.sequence, row.deal)

    def end(self, worker: int) -> ChannelEnd:
        channel = self.channels[worker]
        return ChannelEnd(channel.step, channel.heard, channel.last)
