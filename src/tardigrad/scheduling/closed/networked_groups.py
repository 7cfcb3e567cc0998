"""`Backup` and waiting `SoftSync` over a network: the event loop on plain numbers. No closed form.

Shards may be at different versions, a gradient may come in time at one and too late at another, and
its worker then asks for what it lacks, so that each round depends on the one before event by event.
This loop takes the same events in the same order as the event loop, (time, sequence), sequence
numbers being given out at the same places, so that ties fall as they do there. What it leaves out
is what cannot happen where nobody leaves, no shard stops and no link holds anything back: stays,
timers, headers, and messages that wait behind an earlier one (a worker pushes when it has all
answers, and asks again only then).
"""

from heapq import heappop, heappush
from typing import Any

import numpy as np

from tardigrad.clusters import Messages, TimedCluster
from tardigrad.core.collector import paused_collector
from tardigrad.policies import Backup, Policy, SoftSync
from tardigrad.scheduling.closed.backup import REASON
from tardigrad.scheduling.recorder import Recorder
from tardigrad.scheduling.schedule import Schedule
from tardigrad.scheduling.sources import DrawnAhead

CHUNK = 16
FINISHED, ARRIVED, PULLED, REQUESTED = range(4)

_Event = tuple[float, int, int, int, int, Any]
"""When, sequence, kind, worker, shard, and more."""


def networked_groups(
    policy: Policy, cluster: TimedCluster, updates: int, seed: int, shards: int
) -> Schedule | None:
    """None: all workers wait for each other, which the event loop puts into words."""
    assert cluster.network is not None
    loop = _Groups(
        policy, cluster, updates, seed, cluster.network.realise(seed, cluster.workers, shards)
    )
    with paused_collector():
        ended = loop.run()
    return loop.recorder.schedule() if ended else None


class _Groups:
    def __init__(
        self, policy: Policy, cluster: TimedCluster, updates: int, seed: int, messages: Messages
    ) -> None:
        workers, shards = cluster.workers, messages.shards
        self.by_version = isinstance(policy, Backup)
        """Whether a gradient of an older version is dropped, and all shards are read at one."""
        assert isinstance(policy, Backup | SoftSync)
        if isinstance(policy, Backup):
            self.size = workers - policy.backups
        else:
            self.size = policy.group_size(workers)
        self.updates = updates
        self.recorder = Recorder(workers, shards)
        self._heap: list[_Event] = []
        self._sequence = 0
        self._next_s = DrawnAhead(cluster.realise(seed), workers).next_s
        self._push_s = _Delays(messages, False, workers)
        self._pull_s = _Delays(messages, True, workers)
        # Of each shard.
        self.version = [0] * shards
        self._pending: list[list[tuple[int, int]]] = [[] for _ in range(shards)]
        self._answered: list[dict[int, int]] = [{} for _ in range(shards)]
        self._requests: list[dict[int, int]] = [{} for _ in range(shards)]
        # Of each worker.
        self._have = [[0] * shards for _ in range(workers)]
        self._awaited = [0] * workers
        self._steps = [0] * workers
        self._pulls = [[0] * shards for _ in range(workers)]
        self._computing = [(0, 0)] * workers
        """Row and stamp."""

    def run(self) -> bool:
        """Whether it came to the end."""
        heap, end_s = self._heap, self.recorder.end_s
        shards = range(self.recorder.shards)
        short = len(shards)
        for worker in range(self.recorder.workers):
            self._start(worker, 0, 0.0)
        while heap:
            now_s, _, kind, worker, shard, more = heappop(heap)
            if kind == FINISHED:
                row, _ = self._computing[worker]
                end_s[row] = now_s
                self._awaited[worker] = len(shards)
                took = self._push_s.of(worker, self._steps[worker] - 1)
                sequence = self._sequence
                for s in shards:
                    sequence += 1
                    heappush(heap, (now_s + took[s], sequence, ARRIVED, worker, s, None))
                self._sequence = sequence
            elif kind == PULLED:
                self._pulled(worker, shard, more, now_s)
            else:
                before = self.version[shard]
                if kind == ARRIVED:
                    self._arrived(worker, shard, now_s)
                else:
                    self._requested(worker, shard, more, now_s)
                if before < self.version[shard] == self.updates:
                    short -= 1
                    if not short:
                        return True
        return False

    def _put(self, at_s: float, kind: int, worker: int, shard: int, more: int) -> None:
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (at_s, sequence, kind, worker, shard, more))

    def _start(self, worker: int, stamp: int, now_s: float) -> None:
        step = self._steps[worker]
        self._steps[worker] = step + 1
        row = self.recorder.start(worker, step, stamp, self._have[worker], now_s)
        self._computing[worker] = (row, stamp)
        self._put(now_s + self._next_s(worker), FINISHED, worker, 0, 0)

    def _pulled(self, worker: int, shard: int, version: int, now_s: float) -> None:
        have = self._have[worker]
        have[shard] = max(have[shard], version)
        self._awaited[worker] -= 1
        if self._awaited[worker]:
            return
        newest = max(have)
        behind = [s for s, v in enumerate(have) if v < newest] if self.by_version else []
        self._awaited[worker] = len(behind)
        for s in behind:
            self._put(now_s, REQUESTED, worker, s, newest)
        if not behind:
            self._start(worker, newest, now_s)

    def _arrived(self, worker: int, shard: int, now_s: float) -> None:
        row, stamp = self._computing[worker]
        version, record = self.version[shard], self.recorder
        after, extra = len(record.group_shard), 0
        if version == self.updates:
            self._release(worker, shard, now_s)
            extra = 1
        elif self.by_version and stamp < version:
            record.drop(shard, row, REASON, now_s)
            self._release(worker, shard, now_s)
        else:
            if self.by_version:
                self._answered[shard][worker] = stamp
            self._pending[shard].append((worker, row))
            self._review(shard, now_s)
        extra += self._answer(shard, now_s)
        record.reply(shard, extra, after)

    def _requested(self, worker: int, shard: int, at_least: int, now_s: float) -> None:
        """Nothing for an earlier version will come from there."""
        after = len(self.recorder.group_shard)
        self._requests[shard][worker] = at_least
        if at_least > self.version[shard]:
            answered = self._answered[shard]
            answered[worker] = max(at_least - 1, answered.get(worker, 0))
        self._review(shard, now_s)
        self.recorder.reply(shard, self._answer(shard, now_s), after)

    def _review(self, shard: int, now_s: float) -> None:
        """Apply the group and answer its workers, if there are enough or no more can come."""
        pending = self._pending[shard]
        exhausted = len(self._answered[shard]) == self.recorder.workers
        if not pending or (len(pending) < self.size and not exhausted):
            return
        self._pending[shard] = []
        pending.sort()
        self.recorder.apply(shard, [row for _, row in pending], 1.0, now_s)
        self.version[shard] = version = self.version[shard] + 1
        for worker, _ in pending:
            self._release(worker, shard, now_s)
        answered = self._answered[shard]
        self._answered[shard] = {w: stamp for w, stamp in answered.items() if stamp >= version}

    def _answer(self, shard: int, now_s: float) -> int:
        """Whoever asked for a version that is there by now; how many they are."""
        requests, version = self._requests[shard], self.version[shard]
        if not requests:
            return 0
        ready = sorted(w for w, at_least in requests.items() if at_least <= version)
        for worker in ready:
            del requests[worker]
            self._release(worker, shard, now_s)
        return len(ready)

    def _release(self, worker: int, shard: int, now_s: float) -> None:
        pulls = self._pulls[worker]
        took_s = self._pull_s.of(worker, pulls[shard])[shard]
        pulls[shard] += 1
        self._put(now_s + took_s, PULLED, worker, shard, self.version[shard])


class _Delays:
    """Seconds of messages, drawn some at a time for all workers."""

    def __init__(self, messages: Messages, pull: bool, workers: int) -> None:
        self.messages, self.pull = messages, pull
        self.everyone = np.arange(workers)
        self._drawn: list[list[list[list[float]]]] = []

    def of(self, worker: int, sequence: int) -> list[float]:
        """To or from each shard."""
        chunk, at = divmod(sequence, CHUNK)
        if chunk == len(self._drawn):
            sequences = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK)
            took = self.messages.times(self.pull, self.everyone, sequences)
            self._drawn.append(np.swapaxes(took, 1, 2).tolist())
        return self._drawn[chunk][worker][at]
