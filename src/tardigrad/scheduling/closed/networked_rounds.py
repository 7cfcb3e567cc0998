"""`Backup`, `Deadline` and `Quorum` over a network: a loop over rounds, all workers and shards at a
time.

Worker w's gradient of version u comes to shard s at c(w, s), and the shard's round ends at E(u, s):

    it is answered at q(w, s) = E(u, s) with version u + 1 if c(w, s) ≤ E(u, s), else
    it is dropped, and answered at q(w, s) = c(w, s) with the version that the shard has then.

When all answers are there, at max over s of (q(w, s) + pull), and all of one version, the worker
starts with that. If not, it asks those shards that are behind the newest for it, which answer as
soon as they have it, and so on.

Round v is found from E(v − 1, ·) and before. Everybody is taken to start at version v, if it has
not yet: what was sent after E(v − 1, s) is taken to be of version v. So all gradients of version v
have a time at each shard, and the policy says when its round ends. Whoever was answered after
E(v, s) by some shard does not start at v. It is left out, and tried again with v + 1: its gradients
would have come after the end of every shard's round (checked; else there is no closed form), so
that the ends stay as they are. What is found so agrees with itself in every event, and events
follow from those before.

A worker that waits for a later version of a shard will push nothing for this one. A shard where
that would be the last it waits for ends its round then: no closed form. Nor is there one where
gradients of two workers come at the same instant. Those that start at one instant were all answered
by the same ends of rounds, and go by the shard that was last to answer, then by worker; or there is
none.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from tardigrad.clusters import Messages, TimedCluster
from tardigrad.core.arrays import Flags, Floats, Ints
from tardigrad.policies import Policy
from tardigrad.policies.quorum import VERSIONS
from tardigrad.scheduling.closed.delays_ahead import DelaysAhead
from tardigrad.scheduling.closed.round_ends import RoundEnds, round_ends
from tardigrad.scheduling.closed.rounds import TRIED, StepsAhead, worth_rounds
from tardigrad.scheduling.closed.rounds_found import (
    Asked,
    RoundsFound,
    StartedRows,
    schedule_of,
    shard_turns,
)
from tardigrad.scheduling.schedule import Schedule


def networked_rounds(
    policy: Policy, cluster: TimedCluster, updates: int, seed: int, shards: int
) -> Schedule | None:
    """None: there is no closed form, or rounds turned out so small that the event loop is
    quicker."""
    ends, network = round_ends(policy, cluster.workers, shards), cluster.network
    assert network is not None
    if ends is None:
        return None
    course = _Course(cluster, network.realise(seed, cluster.workers, shards), seed, ends)
    for made in range(updates):
        applied = sum(int(group.min()) for group in course.sizes)
        if made == TRIED and not worth_rounds(cluster.workers, applied // made):
            return None
        if not course.go_on():
            return None
    last = course.settled()
    return None if last is None else schedule_of(cluster.workers, shards, ends.reason, last)


class _Wait(NamedTuple):
    """Of a worker whose answers were of different versions: when it starts, how many pulls it has
    had then, when each shard answered last, and what it asked for."""

    start_s: float
    pulls: list[int]
    answered_s: list[float]
    asked: list[Asked]


class _Course:
    """Rounds so far, and of each worker its gradient on the way."""

    def __init__(
        self, cluster: TimedCluster, messages: Messages, seed: int, ends: RoundEnds
    ) -> None:
        workers, shards = cluster.workers, messages.shards
        self.workers, self.ends = workers, ends
        self.sizes: list[Ints] = []
        """Of each round: at each shard."""
        self.end_s: list[list[float]] = [[] for _ in range(shards)]
        self._set_s: list[list[float]] = [[] for _ in range(shards)]
        self._steps = StepsAhead(cluster.realise(seed), workers)
        self._push, self._pull = (DelaysAhead(messages, way, workers) for way in (False, True))
        self._pulls = np.zeros((workers, shards), dtype=np.int64)
        self._version = np.full(workers, -1)
        self._came_s = np.zeros((workers, shards))
        self._own_end_s = np.zeros((workers, shards))
        """Of the round for which it was."""
        self._mixed: list[int] = []
        """Workers that are known to be answered with different versions."""
        self._started: list[StartedRows] = []
        self._asked: list[Asked] = []

    @property
    def _answered_s(self) -> Floats:
        return np.maximum(self._came_s, self._own_end_s)

    def go_on(self) -> bool:
        """One round more; False: no closed form."""
        version = len(self.sizes)
        answered_s = self._answered_s
        start_s, last = np.zeros(self.workers), np.zeros(self.workers, dtype=np.int64)
        if version:
            back_s = answered_s + self._pull.at(self._pulls)
            start_s = back_s.max(axis=1)
            ended_s, set_s = (np.array([one[-1] for one in of]) for of in (self.end_s, self._set_s))
            turns = shard_turns(ended_s, set_s)
            last = np.where(back_s == start_s[:, None], turns, -1).max(axis=1)
        waits = self._waits()
        if waits is None:
            return False
        for worker, wait in waits.items():
            start_s[worker], answered_s[worker] = wait.start_s, wait.answered_s
        made = self._steps.made
        finish_s = start_s + self._steps.next_s(self._steps.everyone)
        sequences = np.broadcast_to(made[:, None], answered_s.shape)
        came_s = finish_s[:, None] + self._push.at(sequences)
        end_s = self._close(version, np.sort(came_s, axis=0))
        behind: Flags = np.any(answered_s > end_s, axis=1)
        if (came_s[behind] <= end_s).any():
            return False
        ahead = np.nonzero(~behind)[0]
        self._started.append(
            StartedRows(
                worker=ahead,
                step=made[ahead],
                version=np.full(len(ahead), version),
                start_s=start_s[ahead],
                end_s=finish_s[ahead],
                came_s=came_s[ahead],
                pulled_s=answered_s[ahead],
                last=last[ahead],
            )
        )
        made[ahead] += 1
        self._version[ahead] = version
        self._came_s[ahead], self._own_end_s[ahead] = came_s[ahead], end_s
        self.sizes.append((came_s[ahead] <= end_s).sum(axis=0))
        if version:
            self._pulls[ahead] += 1
        for worker, wait in waits.items():
            if not behind[worker]:
                self._pulls[worker] = wait.pulls
                self._asked += wait.asked
        mixed: Flags = behind & np.any(answered_s <= end_s, axis=1)
        mixed[[worker for worker in waits if behind[worker]]] = True
        self._mixed = np.nonzero(mixed)[0].tolist()
        return True

    def settled(self) -> RoundsFound | None:
        """All that was found, when the last round is over; None: no closed form."""
        waits = self._waits()
        if waits is None:
            return None
        asked = [*self._asked, *(one for wait in waits.values() for one in wait.asked)]
        parts = [np.concatenate(part) for part in zip(*self._started, strict=True)]
        return RoundsFound(
            StartedRows._make(parts), np.array(self.end_s).T, np.array(self._set_s).T, asked
        )

    def _close(self, version: int, comes_s: Floats) -> Floats:
        """When each shard's round ends."""
        out = []
        for shard, ends_s in enumerate(self.end_s):
            began_s = [0.0, *ends_s[-VERSIONS:]] if version < VERSIONS else ends_s[-VERSIONS:]
            came_s = self._came_s[:, shard]
            late = np.nonzero((came_s > began_s[-1]) & (self._version >= 0))[0]
            back = version - self._version[late]  # how many rounds ago each began
            known = back < min(VERSIONS, version + 1)
            its_began_s = np.array(began_s)[np.where(known, len(began_s) - 1 - back, 0)]
            took_s = np.where(known, came_s[late] - its_began_s, np.nan)
            end = self.ends.end(shard, comes_s[:, shard], began_s[-1], came_s[late], took_s)
            ends_s.append(end.end_s)
            self._set_s[shard].append(end.set_s)
            out.append(end.end_s)
        return np.array(out)

    def _waits(self) -> dict[int, _Wait] | None:
        """Of those with different answers, as far as is known. None: one that waits for a later
        version was the last that a shard waited for."""
        waits = {worker: self._wait(worker) for worker in self._mixed}
        for shard, ends_s in enumerate(self.end_s):
            waiting = sum(
                one.shard == shard and one.at_s < one.answered_s == ends_s[-1]
                for wait in waits.values()
                for one in wait.asked
            )
            if waiting and self.sizes[-1][shard] + waiting >= self.workers:
                return None
        return waits

    def _wait(self, worker: int) -> _Wait:
        answered_s: list[float] = self._answered_s[worker].tolist()
        pulls: list[int] = self._pulls[worker].tolist()
        have = [bisect_right(e, at_s) for e, at_s in zip(self.end_s, answered_s, strict=True)]
        awaited, asked, at_s = list(range(len(have))), [], 0.0
        while awaited:
            back_s = []
            for shard in awaited:
                back_s.append(answered_s[shard] + self._pull.one(worker, shard, pulls[shard]))
                pulls[shard] += 1
            at_s, newest = max(back_s), max(have)
            awaited = [shard for shard, version in enumerate(have) if version < newest]
            for shard in awaited:
                ends_s = self.end_s[shard]
                have[shard] = max(newest, bisect_right(ends_s, at_s))
                answered_s[shard] = max(at_s, ends_s[newest - 1])
                asked.append(Asked(at_s, shard, newest, answered_s[shard]))
        return _Wait(at_s, pulls, answered_s, asked)
