"""One shard: its session and its numbers together, still without I/O.

A shard's process feeds it from messages and timers; recovery feeds it from the log. Both make the
same calls in the same order, so both end with the same bits.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from tardigrad.core.trees import named
from tardigrad.engine import Arrived, Shard
from tardigrad.protocol.log import LogEntry
from tardigrad.protocol.messages import (
    Applied,
    Came,
    Completed,
    Decision,
    Event,
    Joined,
    Left,
    PushHeader,
    Released,
)
from tardigrad.protocol.shard_session import ShardSession
from tardigrad.recording.setup import RunSetup
from tardigrad.work import by_batch

Buffers = tuple[Tensor, ...]


class PendingGradient(NamedTuple):
    """A gradient that came and waits to be applied, or may be applied again, with the view it was
    computed at."""

    grad: Tensor
    view: Tensor
    buffers: Buffers
    batches: int = 1
    """How many it is made of; each has brought its own buffers."""


class Snapshot(NamedTuple):
    """A version as it was, for evaluation: tensors are never changed in place, so it is free."""

    version: int
    theta: Tensor
    average: Tensor | None
    buffers: Buffers
    samples: int
    time_s: float


class ShardReplica:
    """`sent` holds every version that a worker may still compute at, and the newest."""

    def __init__(self, setup: RunSetup, shard: int) -> None:
        task, sharding = setup.task, setup.sharding
        self.session = ShardSession(
            setup.policy,
            shard,
            sharding.shards,
            range(setup.workers),
            setup.begun_with,
            setup.shard_gate(shard),
            setup.policy.pace(setup.work.batches) if shard == 0 else None,
        )
        self._tells_deviation = setup.link.reads_deviation
        self._deviations: dict[tuple[int, int], float] = {}
        """Of releases that may have to be told (again), by worker and sequence."""
        self._deviation: tuple[Any, float] = (None, 1.0)
        """The rule's state, and what follows from it."""
        theta = task.start()[sharding.slice(shard)].clone()
        layout = sharding.layouts[shard]
        self.shard = Shard(setup.rule, theta, layout, task.batch_size, task.epoch_size)
        self.buffers: Buffers = task.start_buffers() if shard == 0 else ()
        self._setup = setup
        self._snapshot_every = setup.snapshot_every
        self.pending: dict[int, PendingGradient] = {}
        self.sent: dict[int, Tensor] = {0: self.shard.sent}
        self.place: Callable[[], Tensor | None] = lambda: None
        self.keep: Callable[[int, Tensor], Tensor] = lambda version, vector: vector
        """Where a new version may be made, and where it is kept: in the place it was made, unless
        somebody says another."""
        self.snapshots: list[Snapshot] = []
        self.consumed: list[int] = []
        """Rows applied or dropped since the caller last looked, whose memory is free again."""
        if self._snapshot_every:
            self._snapshot(0.0)

    def arrive(self, push: PushHeader, grad: Tensor | None, buffers: Buffers) -> None:
        """Numbers behind a push; the event follows."""
        if grad is None:
            self.consumed.append(push.row)
        else:
            view = self.sent[push.read[self.session.shard]]
            steps = self._setup.deal(push.step, push.row, push.deal).steps
            batches = steps * (1 + len(push.merged))
            self.pending[push.row] = PendingGradient(grad, view, buffers, batches)

    def decide(self, event: Event, now_s: float) -> "Decided":
        """What follows from an event; the numbers stay as they are."""
        entry = LogEntry(event, now_s, self.session.handle(event, now_s))
        headers = self.session.settled
        match event:
            case Came(message) if isinstance(message.body, PushHeader):
                headers = {message.body.row: message.body, **headers}
            case Completed(header):
                headers = {header.row: header, **headers}
        return Decided(entry, headers)

    def carry_out(self, decided: "Decided") -> LogEntry:
        """Do it to the numbers; the entry is then complete."""
        entry, headers = decided
        event, now_s, decisions, _ = entry
        deviations = []
        if isinstance(event, Joined):
            self.shard.join(event.worker)
        elif isinstance(event, Left):
            self.shard.leave(event.worker)
        for item in decisions:
            if isinstance(item, Applied):
                self._apply(item, headers, now_s)
            elif isinstance(item, Released) and self._tells_deviation:
                deviations.append(self._deviation_now())
                self._deviations[item.worker, item.sequence] = deviations[-1]
        # A gate may let go of others too. Without one it is not looked at all that are gathered: a
        # policy that waits for a dead worker may have thousands.
        done = headers if self.session.gate is None else list(self.pending)
        for row in done:
            if row in self.pending and not self.session.may_need(row):
                del self.pending[row]
                self.consumed.append(row)
        if self._tells_deviation:
            kept = {(r.worker, r.sequence) for c in self.session.channels.values() for r in c.kept}
            self._deviations = {at: self._deviations[at] for at in kept & self._deviations.keys()}
        newest, readers = self.shard.version, self.session.readers
        for version in [v for v in self.sent if v != newest and v not in readers]:
            del self.sent[version]
        return entry._replace(deviations=tuple(deviations)) if deviations else entry

    def deviations(self, releases: Sequence[Released]) -> tuple[float, ...]:
        """As they were at these releases, where a link goes by them."""
        if not self._tells_deviation:
            return ()
        return tuple(self._deviations.get((r.worker, r.sequence), 1.0) for r in releases)

    def _deviation_now(self) -> float:
        state = self.shard.state
        if self._deviation[0] is not state:
            deviation = self.shard.rule.deviation(state)
            assert deviation is not None  # checked before the run
            self._deviation = (state, float(deviation.mean()))
        return self._deviation[1]

    def _apply(self, applied: Applied, headers: Mapping[int, PushHeader], now_s: float) -> None:
        shard, me = self.shard, self.session.shard
        arrived = []
        for row in applied.rows:
            pending, push = self.pending[row], headers[row]
            delay = shard.version - push.read[me]
            grad, view, buffers, batches = pending
            arrived.append(Arrived(push.worker, grad, view, delay, batches))
            for found in by_batch(buffers, batches):
                self.buffers = self._setup.task.fold(self.buffers, found)
        shard.apply(arrived, applied.scale, self.place(), applied.weights)
        kept = self.keep(shard.version, shard.sent)
        if shard.theta is shard.sent:
            shard.theta = kept
        shard.sent = self.sent[shard.version] = kept
        if self._snapshot_every and shard.version % self._snapshot_every == 0:
            self._snapshot(now_s)

    def _snapshot(self, now_s: float) -> None:
        shard = self.shard
        average = shard.state.average[0] if shard.state.average else None
        self.snapshots.append(
            Snapshot(shard.version, shard.theta, average, self.buffers, shard.samples, now_s)
        )

    def digest(self) -> str:
        """Of θ, bit for bit."""
        return tensor_digest(self.shard.theta)

    def refeed(self, entries: Sequence[LogEntry]) -> None:
        """Let the session live through a log again, without numbers; it must decide as it did."""
        for entry in entries:
            decided = self.session.handle(entry.event, entry.now_s)
            check_same_decisions(self.session.shard, entry, decided)

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name; the session comes from the log."""
        out = self.shard.tensors("shard")
        out |= {f"sent.{version}": tensor for version, tensor in self.sent.items()}
        out |= named(self.buffers, "buffers")
        for row, pending in self.pending.items():
            out |= {f"pending.{row}.grad": pending.grad, f"pending.{row}.view": pending.view}
            out |= named(pending.buffers, f"pending.{row}.buffers")
        for one in self.snapshots:
            at = f"snapshot.{one.version}"
            out[f"{at}.theta"] = one.theta
            out |= named(one.buffers, f"{at}.buffers")
            if one.average is not None:
                out[f"{at}.average"] = one.average
        return out

    def facts(self) -> dict[str, Any]:
        return {
            "shard": self.shard.facts(),
            "sent": list(self.sent),
            "buffers": len(self.buffers),
            "pending": {str(row): (len(p.buffers), p.batches) for row, p in self.pending.items()},
            "deviations": [(*at, value) for at, value in self._deviations.items()],
            "snapshots": [(s.version, len(s.buffers), s.samples, s.time_s) for s in self.snapshots],
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.shard.restore("shard", tensors, facts["shard"])
        self.sent = {version: tensors[f"sent.{version}"] for version in facts["sent"]}
        self.sent[self.shard.version] = self.shard.sent
        self.buffers = tuple(tensors[f"buffers.{i}"] for i in range(facts["buffers"]))
        self.pending = {
            int(row): PendingGradient(
                tensors[f"pending.{row}.grad"],
                tensors[f"pending.{row}.view"],
                tuple(tensors[f"pending.{row}.buffers.{i}"] for i in range(count)),
                batches,
            )
            for row, (count, batches) in facts["pending"].items()
        }
        self._deviations = {(w, sequence): value for w, sequence, value in facts["deviations"]}
        self.snapshots = [
            Snapshot(
                version,
                tensors[f"snapshot.{version}.theta"],
                tensors.get(f"snapshot.{version}.average"),
                tuple(tensors[f"snapshot.{version}.buffers.{i}"] for i in range(count)),
                samples,
                time_s,
            )
            for version, count, samples, time_s in facts["snapshots"]
        ]


class Decided(NamedTuple):
    """An event with what follows from it, and the headers of what came, was applied or dropped."""

    entry: LogEntry
    headers: Mapping[int, PushHeader]


def check_same_decisions(shard: int, entry: LogEntry, decided: Sequence[Decision]) -> None:
    if decided != entry.decided:
        raise ValueError(
            f"shard {shard}'s log, {entry.event}: the policy now decides {decided}, but the log "
            f"says {entry.decided}; the log is of another policy, or of another version of its code"
        )


def tensor_digest(tensor: Tensor) -> str:
    """Of a tensor's bytes: equal where the bits are."""
    data = tensor.detach().cpu().contiguous().numpy().data
    return hashlib.blake2b(data, digest_size=8).hexdigest()
