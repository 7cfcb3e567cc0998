"""A simulator of its own for the planner's figures: one event queue, four policies, no code shared.

Written from what the policies promise, not from how they do it.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

Versions = tuple[int, ...]
Seconds = Callable[[int, int, int], float]
"""Of a worker's message to or from a shard: (worker, shard, how many went before)."""


@dataclass
class Done:
    """What happened until every shard had its updates."""

    lasted_s: float = 0.0
    applied: int = 0
    dropped: int = 0
    updates: int = 0
    shards: int = 1
    delays: list[int] = field(default_factory=list)
    collected_s: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    """Per (shard, version): when its gradients came, from its start on."""
    computed: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """Per worker: from when to when it computed, to the moment it left where it did."""
    gone_s: dict[int, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def gradients_per_s(self) -> float:
        return self.applied / self.shards / self.lasted_s

    @property
    def dropped_share(self) -> float:
        return self.dropped / (self.applied + self.dropped)

    @property
    def waiting(self) -> float:
        waited = there = 0.0
        for worker, spans in self.computed.items():
            for (start, end), (following, _) in pairwise(spans):
                gone = [g for g in self.gone_s.get(worker, []) if start <= g[0] < following]
                here = following - start - sum(back - left for left, back in gone)
                there += here
                waited += here - (end - start)
        return waited / there


def run(
    kind: str,  # async, sync, backup or deadline
    workers: int,
    updates: int,
    step_s: Callable[[int, int], float],
    shards: int = 1,
    push_s: Seconds = lambda *_: 0.0,
    pull_s: Seconds = lambda *_: 0.0,
    absences: Iterable[tuple[int, float, float | None]] = (),
    spare: int = 0,
    timeout_s: float = 0.0,
) -> Done:
    done = Done(shards=shards, updates=updates)
    queue: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
    numbers = count()
    sent: dict[tuple[int, int, int], int] = defaultdict(int)
    version, began = [0] * shards, [0.0] * shards
    # Per shard: (worker, its stay, versions read) of the gradients that have come,
    group: list[list[tuple[int, int, Versions]]] = [[] for _ in range(shards)]
    # the newest round that each worker has done or skips,
    heard: list[dict[int, int]] = [{} for _ in range(shards)]
    # and who waits for which version.
    wanted: list[dict[int, int]] = [{} for _ in range(shards)]
    here, stay, steps = set(range(workers)), [0] * workers, [0] * workers
    have = [[0] * shards for _ in range(workers)]
    owed: list[set[int]] = [set() for _ in range(workers)]
    now = 0.0

    def at(time: float, what: Callable[..., None], *args: Any, rank: int = 0) -> None:
        heapq.heappush(queue, (time, rank, next(numbers), what, args))

    def start(worker: int) -> None:
        done.computed.setdefault(worker, []).append((now, float("inf")))
        at(now + step_s(worker, steps[worker]), finish, worker, stay[worker], tuple(have[worker]))
        steps[worker] += 1

    def finish(worker: int, of: int, read: Versions) -> None:
        if of != stay[worker]:
            return
        done.computed[worker][-1] = (done.computed[worker][-1][0], now)
        owed[worker] = set(range(shards))
        for shard in range(shards):
            sent[worker, shard, 0] += 1
            took = push_s(worker, shard, sent[worker, shard, 0] - 1)
            at(now + took, push, shard, worker, of, read)

    def push(shard: int, worker: int, of: int, read: Versions) -> None:
        current, seen = version[shard], read[shard]
        done.collected_s.setdefault((shard, current), [])
        if kind != "async" and seen == current:
            done.collected_s[shard, current].append(now - began[shard])
        if current == updates:
            answer(shard, worker, of)
        elif kind != "async" and seen < current:
            done.dropped += 1
            answer(shard, worker, of)
        else:
            group[shard].append((worker, of, read))
            if of == stay[worker]:
                heard[shard][worker] = max(read)
            review(shard)

    def review(shard: int) -> None:
        waiting = {w for w, of, _ in group[shard] if of == stay[w] and w in here}
        over = all(heard[shard].get(w, -1) >= version[shard] for w in here) and len(here) > 0
        enough = kind != "deadline" and len(waiting) >= max(1, len(here) - spare)
        if group[shard] and (kind == "async" or enough or over):
            close(shard, version[shard])
        elif group[shard] and kind == "deadline":
            at(max(now, began[shard] + timeout_s), close, shard, version[shard], rank=1)

    def close(shard: int, of_version: int) -> None:
        if version[shard] != of_version:
            return
        members, group[shard] = group[shard], []
        done.applied += len(members)
        done.delays += [version[shard] - read[shard] for _, _, read in members]
        version[shard] += 1
        began[shard] = done.lasted_s = now
        for worker, of, _ in sorted(members):
            answer(shard, worker, of)
        for worker in [w for w, v in sorted(wanted[shard].items()) if v <= version[shard]]:
            del wanted[shard][worker]
            answer(shard, worker, stay[worker])

    def answer(shard: int, worker: int, of: int) -> None:
        if worker in here and of == stay[worker]:
            sent[worker, shard, 1] += 1
            took = pull_s(worker, shard, sent[worker, shard, 1] - 1)
            at(now + took, pull, worker, of, shard, version[shard])

    def pull(worker: int, of: int, shard: int, brought: int) -> None:
        if of != stay[worker] or worker not in here:
            return
        have[worker][shard] = max(have[worker][shard], brought)
        owed[worker].discard(shard)
        if owed[worker]:
            return
        newest = max(have[worker])
        if kind != "async":  # all shards at one version, or ask those behind for it
            owed[worker] = {s for s in range(shards) if have[worker][s] < newest}
        for behind in sorted(owed[worker]):
            heard[behind][worker] = newest - 1
            wanted[behind][worker] = newest
            review(behind)
            if worker in wanted[behind] and version[behind] >= newest:
                del wanted[behind][worker]
                answer(behind, worker, of)
        if not owed[worker]:
            start(worker)

    def leave(worker: int) -> None:
        here.discard(worker)
        stay[worker] += 1
        done.gone_s.setdefault(worker, []).append((now, now))
        begun, ended = done.computed[worker][-1]
        done.computed[worker][-1] = (begun, min(ended, now))
        for shard in range(shards):
            heard[shard].pop(worker, None)
            wanted[shard].pop(worker, None)
            review(shard)

    def join(worker: int) -> None:
        here.add(worker)
        done.gone_s[worker][-1] = (done.gone_s[worker][-1][0], now)
        owed[worker] = set(range(shards))
        for shard in range(shards):
            answer(shard, worker, stay[worker])

    for worker, leaves_s, returns_s in absences:
        at(leaves_s, leave, worker)
        if returns_s is not None:
            at(returns_s, join, worker)
    for worker in range(workers):
        start(worker)
    while min(version) < updates or queue[0][0] == now:  # what takes no time is still done
        now, _, _, what, args = heapq.heappop(queue)
        what(*args)
    return done
