"""Few workers first, then more."""

from collections.abc import Iterable
from dataclasses import dataclass

from tardigrad.core.checks import count
from tardigrad.policies.machine import (
    Arrival,
    Policy,
    PullHalf,
    PushHalf,
    Request,
    ShardCommand,
    WorkerCommand,
)
from tardigrad.policies.wrapping import WrappingPolicy


@dataclass(frozen=True)
class RampUp(WrappingPolicy):
    """Run `policy` with one worker at first and one more at a time, all after `updates` updates.

    At version k of a shard 1 + ⌊(N − 1) k / updates⌋ of the present workers are in flight, in
    worker order; the others wait, and for `policy` have not joined yet (so its quotas grow too). A
    worker starts when every shard has let it in. For asynchronous training at large staleness
    (above some 15 steps), which may otherwise blow up at the start.

    A choice: N stays the number at the start. One that leaves lets the next ones move up, and never
    takes back a turn: shards hear of it at different versions, and those that had let a worker in
    would wait for it while it waits for the others. Newcomers come last.

    Args:
        policy: any other policy.
        updates: over how many updates the number grows.

    Reference: Chen et al., Revisiting Distributed Synchronous SGD (2016), section 2.1.
    """

    updates: int

    def __post_init__(self) -> None:
        super().__post_init__()
        count("updates", self.updates)

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _RampUpHalf(self.policy, workers, self.updates)

    def pull_half(self, shards: int) -> PullHalf:
        return _AskFirst(self.policy.pull_half(shards))


class _RampUpHalf(PushHalf):
    """Keeps the newcomers in a queue; `policy`'s own half sees them join one by one."""

    def __init__(self, policy: Policy, workers: Iterable[int], updates: int) -> None:
        super().__init__(workers)
        self._order = sorted(self.members)
        self._first, *self._queue = self._order
        self._inner = policy.push_half([self._first])
        self.updates = updates
        self._steps: dict[int, int] = {}
        """The first that a newcomer will compute, where it is not 0."""
        rest = len(self._order) - 1
        self._turns = [0, *(-(-k * updates // rest) for k in range(1, rest + 1))]
        """From which version on each place in the order is in flight."""

    def on_request(self, worker: int, at_least: int, now_s: float) -> list[ShardCommand]:
        if worker in self._queue or (not at_least and worker != self._first):
            return []  # it asks to begin: its answer comes, or came, when its turn does
        return self._grow(self._inner.on_request(worker, at_least, now_s), now_s)

    def on_join(
        self, worker: int, now_s: float, stay: int = 0, step: int = 0
    ) -> list[ShardCommand]:
        self.members.add(worker)
        if stay:
            self.stays[worker] = stay
        self._steps[worker] = step
        self._queue.append(worker)
        self._order.append(worker)
        return self._grow([], now_s)

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        return self._grow(self._inner.on_push(arrival, now_s), now_s)

    def header(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        return self._grow(self._inner.on_header(arrival, now_s), now_s)

    def on_interrupted(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        return self._grow(self._inner.on_interrupted(arrival, now_s), now_s)

    def timer(self, token: int, now_s: float) -> list[ShardCommand]:
        return self._grow(self._inner.on_timer(token, now_s), now_s)

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        self._order.remove(worker)
        if worker in self._queue:
            self._queue.remove(worker)
            return self._grow([], now_s)
        return self._grow(self._inner.on_leave(worker, now_s), now_s)

    def _grow(self, commands: list[ShardCommand], now_s: float) -> list[ShardCommand]:
        """Follow the inner half's version and let in whoever's turn has come."""
        while (worker := self._next()) is not None:
            self._queue.pop(0)
            stay, step = self.stays.get(worker, 0), self._steps.get(worker, 0)
            commands = [*commands, *self._inner.on_join(worker, now_s, stay, step)]
        self.version = self._inner.version
        return commands

    def _next(self) -> int | None:
        if not self._queue:
            return None
        place = self._order.index(self._queue[0])
        turn = self._turns[place] if place < len(self._turns) else self.updates
        return self._queue[0] if turn <= self._inner.version else None


class _AskFirst(PullHalf):
    """Another pull half, except that at the beginning it asks every shard and waits for all."""

    def __init__(self, inner: PullHalf) -> None:
        self._inner = inner
        self.have = inner.have
        self.waits = inner.waits
        self.same_version = inner.same_version

    def begin(self) -> list[WorkerCommand]:
        self._inner.rejoined()
        return [Request(shard, 0) for shard in range(len(self.have))]

    def pulled(self, shard: int, version: int, now_s: float) -> list[WorkerCommand]:
        return self._inner.pulled(shard, version, now_s)

    def finished(self, now_s: float) -> list[WorkerCommand]:
        return self._inner.finished(now_s)

    def go_on(self, now_s: float) -> list[WorkerCommand]:
        return self._inner.go_on(now_s)

    def ended(self, shard: int) -> None:
        self._inner.ended(shard)

    def timer(self, token: int, now_s: float) -> list[WorkerCommand]:
        return self._inner.timer(token, now_s)

    def rejoined(self) -> None:
        self._inner.rejoined()

    def replaced(self) -> list[WorkerCommand]:
        return self._inner.replaced()
