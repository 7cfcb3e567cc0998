"""Shared by push halves that collect gradients into groups."""

from abc import abstractmethod
from collections.abc import Iterable

from tardigrad.policies.machine import Arrival, Drop, PushHalf, ShardCommand, release

EARLIER_STAY = "earlier stay"
"""Computed before its worker left, and followed in the same group by what it computed since."""


class GroupHalf(PushHalf):
    """Gathers gradients until there are enough, applies them as one update, answers their workers.

    `waiting` names the worker of every gathered gradient, except those who left since: they are
    neither counted nor answered, but their gradients stay in the group, until one comes that the
    same worker has computed since it came back.
    """

    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        self.pending: list[Arrival] = []
        self.waiting: list[int] = []

    @abstractmethod
    def review(self, now_s: float) -> list[ShardCommand]:
        """There may be enough now: apply, or go on waiting."""

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        return self.gather(arrival, now_s)

    def gather(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        """This one too, and see whether there are enough."""
        worker = arrival.worker
        dropped = None
        if worker in self.stays:
            dropped = self.take(arrival)
        else:
            self.pending.append(arrival)
        if self.present(arrival):
            self.waiting.append(worker)
        commands = self.review(now_s)
        return [*dropped, *commands] if dropped else commands

    def take(self, arrival: Arrival) -> list[ShardCommand]:
        """Into the group, where at most one stay of its worker counts: the newest. What is of an
        earlier one is dropped, be it this."""
        mine = [a for a in self.pending if a.worker == arrival.worker]
        if any(a.stay > arrival.stay for a in mine):
            return [Drop(arrival.row, EARLIER_STAY)]
        old = [a for a in mine if a.stay < arrival.stay]
        self.pending = [a for a in self.pending if a not in old]
        self.pending.append(arrival)
        return [Drop(a.row, EARLIER_STAY) for a in old]

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        self.waiting = [w for w in self.waiting if w != worker]
        return self.review(now_s)

    def close(self, scale: float = 1.0) -> list[ShardCommand]:
        """Apply the group and answer, in worker order, everybody who waits for it."""
        group, waiting = self.pending, sorted(self.waiting)
        self.pending, self.waiting = [], []
        return [self.apply(group, scale), *map(release, waiting)]


class RoundHalf(GroupHalf):
    """One update per round: gradients stamped with an older round are dropped.

    Where all shards are pulled at the same version the stamp is that version. Under partial pulling
    a shard may be behind a worker's round; it accepts the newer stamp, because a gradient judged by
    the version it read of this shard would always come too late at a shard that is often the last
    to answer. `answered` then keeps, over the end of a round, who has pushed for a later one
    already: nothing more of this round can come from there, so nobody waits for it. The same holds
    for a worker that asks for a later version, because it joined while the shards were apart.
    """

    reason = "old version"

    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        self.answered: dict[int, int] = {}
        """The newest stamp of each present worker from whom nothing more of this round can come."""

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        worker, stamp = arrival.worker, arrival.stamp
        if stamp < self.version:
            return self.refuse(arrival)
        if self.present(arrival) and self.answered.get(worker, -1) < stamp:
            self.answered[worker] = stamp
        return self.gather(arrival, now_s)

    def requested(self, worker: int, at_least: int, now_s: float) -> list[ShardCommand]:
        self._settle(worker, at_least - 1)
        return self.review(now_s)

    def refuse(self, arrival: Arrival) -> list[ShardCommand]:
        """Drop it, and send its worker the current version at once."""
        return [Drop(arrival.row, self.reason), *self.answer(arrival)]

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        self.answered.pop(worker, None)
        return super().left(worker, now_s)

    def close(self, scale: float = 1.0) -> list[ShardCommand]:
        commands = super().close(scale)
        self.answered = {w: s for w, s in self.answered.items() if s >= self.version}
        return commands

    @property
    def exhausted(self) -> bool:
        """Whether there are gradients of this round and no more can come."""
        return len(self.answered) == len(self.members) and bool(self.pending and self.members)

    def _settle(self, worker: int, stamp: int) -> None:
        """Nothing stamped up to here will come from this worker any more."""
        if worker in self.members and stamp >= self.version:
            self.answered[worker] = max(stamp, self.answered.get(worker, stamp))


class OpenRoundHalf(RoundHalf):
    """Rounds to which a worker may give several: who pushes goes on at once with what is there."""

    def __init__(self, workers: Iterable[int], batch: int) -> None:
        super().__init__(workers)
        self.batch = batch

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        if arrival.stamp < self.version:
            return self.refuse(arrival)
        # More may come of this worker, so that, other than in rounds, it has not answered.
        return [*self.gather(arrival, now_s), *self.answer(arrival)]


class QuotaHalf(RoundHalf):
    """A round ends with the gradients of all present workers but `spare`, of one at least; or when
    nothing more can come."""

    def __init__(self, workers: Iterable[int], spare: int = 0) -> None:
        super().__init__(workers)
        self.spare = spare

    def review(self, now_s: float) -> list[ShardCommand]:
        quota, waiting = len(self.members) - self.spare, self.waiting
        enough = len(waiting) >= quota and waiting and len(set(waiting)) >= quota
        return self.close() if enough or self.exhausted else []
