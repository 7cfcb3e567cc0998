"""Push halves fed by hand: told who pushes, with rows numbered in turn."""

from tardigrad.policies import Arrival, Drop, Policy, PushHalf, Release
from tardigrad.policies.machine import ShardCommand


class Shard:
    """One push half; `push(w)` hands it worker w's next gradient, as row 0, 1, 2, …"""

    def __init__(self, policy: Policy, workers: int) -> None:
        policy.check(workers, 1)
        self.half: PushHalf = policy.push_half(range(workers))
        self.rows = 0
        self.steps = [0] * workers

    def push(
        self, worker: int, stamp: int = 0, read: int | None = None, at_s: float = 0.0
    ) -> list[ShardCommand]:
        read = stamp if read is None else read
        arrival = Arrival(self.rows, worker, self.steps[worker], stamp, read)
        self.rows += 1
        self.steps[worker] += 1
        return self.half.on_push(arrival, at_s)

    def leave(self, worker: int, at_s: float = 0.0) -> list[ShardCommand]:
        return self.half.on_leave(worker, at_s)

    def join(self, worker: int, at_s: float = 0.0) -> list[ShardCommand]:
        return self.half.on_join(worker, at_s)

    def timer(self, token: int, at_s: float = 0.0) -> list[ShardCommand]:
        return self.half.on_timer(token, at_s)


def releases(*workers: int) -> list[ShardCommand]:
    return [Release(w) for w in workers]


def dropped(row: int, reason: str, worker: int) -> list[ShardCommand]:
    return [Drop(row, reason), Release(worker)]
