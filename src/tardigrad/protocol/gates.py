"""A link at work at a worker and at a shard: what crosses, what was sent last, what is unsent.

The worker decides on its pushes and the shard on its releases, each with a gate of its own, made of
the same link and seed. What a worker's gate decided stands in its headers, so a shard's state is a
function of what came to it.

**Choices**: a worker's new life begins its gate anew, and so with a push that crosses; a shard goes
on. Gradients that waited for a push that crosses are lost with their worker, and dropped as
"unsent". A worker that has come, or another one's place, is sent parameters first. A gradient that
a dead worker had pushed to some shards only is computed again and crosses to the others.
"""

from collections.abc import Sequence

from tardigrad.links import Gate, Link
from tardigrad.protocol.messages import PushHeader


class WorkerGate:
    """One life of a worker."""

    def __init__(self, link: Link, gate: Gate, worker: int, shards: int) -> None:
        self.heard = [1.0] * shards
        """The deviation of each shard, as it came with the last release."""
        self._gate = gate
        self._worker = worker
        self._tells = link.reads_deviation
        self._averages = link.on_drop == "average"
        self._sent = [False] * shards
        self._unsent: list[list[int]] = [[] for _ in range(shards)]

    def push(self, push: PushHeader, shard: int) -> PushHeader:
        """The header as this shard gets it."""
        # The gate counts opportunities, so it is asked for the first push as well.
        crosses = self._gate.push(self._worker, shard, self.heard) or not self._sent[shard]
        merged: Sequence[int] = ()
        if crosses:
            self._sent[shard] = True
            merged, self._unsent[shard] = self._unsent[shard], []
        elif self._averages:
            self._unsent[shard].append(push.row)
        deviations = tuple(self.heard) if self._tells else ()
        return push._replace(crosses=crosses, merged=tuple(merged), deviations=deviations)

    def unsent(self) -> set[int]:
        """Rows that wait for a push that crosses, to some shard or other."""
        return {row for rows in self._unsent for row in rows}


class ShardGate:
    """One shard, for all workers."""

    def __init__(self, link: Link, gate: Gate, shard: int, shards: int) -> None:
        self._gate = gate
        self._shard = shard
        self._shards = shards
        self._reads = link.reads_deviation
        self._reapplies = link.on_drop == "reapply"
        self._deviations: dict[int, tuple[float, ...]] = {}
        """As each worker told them with its last push."""
        self._fresh: set[int] = set()
        """Workers that have nothing to compute with."""
        self._unsent: dict[int, list[int]] = {}
        self._sent: dict[int, PushHeader] = {}
        """The last push of each worker that crossed."""

    def wrong(self, push: PushHeader) -> str | None:
        """What no correct worker says."""
        if not push.finite:
            return None
        told = len(push.deviations)
        if told != self._shards * self._reads:
            return f"it tells {told} deviations of {self._shards} shards"
        unsent = tuple(self._unsent.get(push.worker, ())) if push.crosses else ()
        if push.merged != unsent:
            return f"it is merged with rows {list(push.merged)}, unsent were {list(unsent)}"
        if not push.crosses and push.worker not in self._sent:
            return "its gradient was held back, although none has come before"
        return None

    def arrive(self, push: PushHeader) -> PushHeader | None:
        """What is to be applied: this push, the last one that crossed again, or nothing."""
        self._deviations[push.worker] = push.deviations
        if push.crosses:
            self._unsent.pop(push.worker, None)
            self._sent[push.worker] = push
            return push
        if self._reapplies:
            return self._sent[push.worker]
        self._unsent.setdefault(push.worker, []).append(push.row)
        return None

    def carries(self, worker: int) -> bool:
        """Whether a release that is being made carries the version's numbers."""
        heard = self._deviations.get(worker) or (1.0,) * self._shards
        crosses = self._gate.pull(worker, self._shard, heard)
        if worker in self._fresh:
            self._fresh.discard(worker)
            return True
        return crosses

    def begin_anew(self, worker: int) -> list[int]:
        """Another process is this worker, or none any more: the rows that are lost with it."""
        self._fresh.add(worker)
        self._deviations.pop(worker, None)
        self._sent.pop(worker, None)
        return self._unsent.pop(worker, [])

    def refresh(self, worker: int) -> None:
        """Let the next release carry numbers."""
        self._fresh.add(worker)

    def may_repeat(self, row: int) -> bool:
        """Whether this gradient may be applied again."""
        return self._reapplies and any(push.row == row for push in self._sent.values())

    def unsent(self) -> set[int]:
        return {row for rows in self._unsent.values() for row in rows}
