"""One shard: its control and its numbers together, still without I/O.

The actor feeds it from messages and timers; recovery feeds it from the log. Both make the same
calls in the same order, so both end with the same bits.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from tardigrad.core.trees import named
from tardigrad.engine import Arrived, Shard
from tardigrad.runtime.control import Control
from tardigrad.runtime.messages import (
    Applied,
    Decided,
    Dropped,
    Event,
    PushHeader,
    Released,
    Ticket,
)

Buffers = tuple[Tensor, ...]
Fold = Callable[[Buffers, Buffers], Buffers]


class Pending(NamedTuple):
    """A gradient that came and waits to be applied, with the view it was computed at."""

    grad: Tensor
    view: Tensor
    buffers: Buffers


class Snapshot(NamedTuple):
    """A version as it was, for evaluation: tensors are never changed in place, so it is free."""

    version: int
    theta: Tensor
    average: Tensor | None
    buffers: Buffers
    samples: int
    time_s: float


class Server:
    """`sent` holds every version that a worker may still compute at, and the newest."""

    def __init__(
        self,
        control: Control,
        shard: Shard,
        buffers: Buffers = (),
        fold: Fold | None = None,
        snapshot_every: int = 0,
    ) -> None:
        self.place: Callable[[], Tensor | None] = lambda: None
        self.keep: Callable[[int, Tensor], Tensor] = lambda version, vector: vector
        """Where a new version may be made, and where it is kept: in the place it was made, unless
        somebody says another."""
        self.control = control
        self.shard = shard
        self.buffers = buffers
        self.fold = fold
        self.snapshot_every = snapshot_every
        self.pending: dict[int, Pending] = {}
        self.sent: dict[int, Tensor] = {shard.version: shard.sent}
        self.snapshots: list[Snapshot] = []
        self.consumed: list[int] = []
        """Rows applied or dropped since the caller last looked, whose memory is free again."""
        if snapshot_every and shard.version == 0:
            self._snapshot(0.0)

    def arrive(self, push: PushHeader, grad: Tensor | None, buffers: Buffers) -> None:
        """Numbers behind a push; the event follows."""
        if grad is None or self.control.done:
            self.consumed.append(push.row)
        else:
            view = self.sent[push.read[self.control.shard]]
            self.pending[push.row] = Pending(grad, view, buffers)

    def carry_out(
        self, event: Event, decided: Sequence[Decided], headers: Mapping[int, PushHeader]
    ) -> Iterator[Released | Ticket]:
        """Do what was decided, in order; what is yielded leaves the shard at that moment.

        `headers` are the pushes that were waiting before the event was decided.
        """
        if event.kind in ("join", "leave"):
            (worker,) = event.what
            (self.shard.join if event.kind == "join" else self.shard.leave)(worker)
        for item in decided:
            if isinstance(item, Applied):
                self._apply(item, headers, event.now_s)
            elif isinstance(item, Dropped):
                if self.pending.pop(item.row, None) is not None:
                    self.consumed.append(item.row)
            elif isinstance(item, Released | Ticket):
                yield item
        self._prune()

    def _apply(self, applied: Applied, headers: Mapping[int, PushHeader], now_s: float) -> None:
        shard, me = self.shard, self.control.shard
        arrived = []
        for row in applied.rows:
            pending, push = self.pending.pop(row), headers[row]
            delay = shard.version - push.read[me]
            arrived.append(Arrived(push.worker, pending.grad, pending.view, delay))
            if self.fold is not None and pending.buffers:
                self.buffers = self.fold(self.buffers, pending.buffers)
        shard.apply(arrived, applied.scale, self.place())
        self.consumed.extend(applied.rows)
        kept = self.keep(shard.version, shard.sent)
        if shard.theta is shard.sent:
            shard.theta = kept
        shard.sent = self.sent[shard.version] = kept
        if self.snapshot_every and shard.version % self.snapshot_every == 0:
            self._snapshot(now_s)

    def _prune(self) -> None:
        readers, newest = self.control.readers, self.shard.version
        for version in [v for v in self.sent if v != newest and v not in readers]:
            del self.sent[version]

    def _snapshot(self, now_s: float) -> None:
        shard = self.shard
        average = shard.state.average[0] if shard.state.average else None
        self.snapshots.append(
            Snapshot(shard.version, shard.theta, average, self.buffers, shard.samples, now_s)
        )

    def digest(self) -> str:
        """Of θ, bit for bit."""
        return digest(self.shard.theta)

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name; the control comes from the log."""
        out = self.shard.tensors("shard")
        out |= {f"sent.{version}": tensor for version, tensor in self.sent.items()}
        out |= named(self.buffers, "buffers")
        for row, pending in self.pending.items():
            out |= {f"pending.{row}.grad": pending.grad, f"pending.{row}.view": pending.view}
            out |= named(pending.buffers, f"pending.{row}.buffers")
        return out

    def facts(self) -> dict[str, Any]:
        return {
            "shard": self.shard.facts(),
            "sent": list(self.sent),
            "buffers": len(self.buffers),
            "pending": {str(row): len(p.buffers) for row, p in self.pending.items()},
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.shard.restore("shard", tensors, facts["shard"])
        self.sent = {version: tensors[f"sent.{version}"] for version in facts["sent"]}
        self.sent[self.shard.version] = self.shard.sent
        self.buffers = tuple(tensors[f"buffers.{i}"] for i in range(facts["buffers"]))
        self.pending = {
            int(row): Pending(
                tensors[f"pending.{row}.grad"],
                tensors[f"pending.{row}.view"],
                tuple(tensors[f"pending.{row}.buffers.{i}"] for i in range(count)),
            )
            for row, count in facts["pending"].items()
        }
        self.snapshots.clear()


def digest(tensor: Tensor) -> str:
    """Of a tensor's bytes: equal where the bits are."""
    data = tensor.detach().contiguous().numpy().data
    return hashlib.blake2b(data, digest_size=8).hexdigest()
