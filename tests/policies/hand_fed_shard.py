"""Push halves fed by hand: told who pushes, with rows numbered in turn."""

from tardigrad.policies import Arrival, Drop, Policy, PushHalf, Release
from tardigrad.policies.machine import ShardCommand


class Shard:
    """One push half; `push(w)` hands it worker w's next gradient, as row 0, 1, 2, …, of its
    present stay or of the one given."""

    def __init__(self, policy: Policy, workers: int) -> None:
        policy.check(workers, 1)
        self.half: PushHalf = policy.push_half(range(workers))
        self.rows = 0
        self.steps = [0] * workers
        self.stays = [0] * workers

    def push(
        self,
        worker: int,
        stamp: int = 0,
        read: int | None = None,
        at_s: float = 0.0,
        stay: int | None = None,
        steps: int = 1,
        samples: int = 0,
    ) -> list[ShardCommand]:
        read = stamp if read is None else read
        stay = self.stays[worker] if stay is None else stay
        step = self.steps[worker]
        arrival = Arrival(self.rows, worker, step, stamp, read, stay, steps, samples)
        self.rows += 1
        self.steps[worker] += 1
        return self.half.on_push(arrival, at_s)

    def leave(self, worker: int, at_s: float = 0.0) -> list[ShardCommand]:
        return self.half.on_leave(worker, at_s)

    def join(self, worker: int, at_s: float = 0.0) -> list[ShardCommand]:
        self.stays[worker] += 1
        return self.half.on_join(worker, at_s, self.stays[worker])

    def timer(self, token: int, at_s: float = 0.0) -> list[ShardCommand]:
        return self.half.on_timer(token, at_s)


def releases(*workers: int) -> list[ShardCommand]:
    return [Release(w) for w in workers]


def dropped(row: int, reason: str, worker: int) -> list[ShardCommand]:
    return [Drop(row, reason), Release(worker)]
