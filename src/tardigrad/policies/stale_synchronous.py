"""Stale-synchronous parallel: asynchronous, but nobody runs far ahead of the slowest."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from tardigrad.core.checks import require
from tardigrad.policies.machine import Arrival, Policy, PushHalf, ShardCommand, release


@dataclass(frozen=True)
class StaleSynchronous(Policy):
    """Apply each gradient on arrival; nobody runs more than `bound` steps ahead of the slowest.

    A worker that has pushed c gradients goes on iff c − min over present workers ≤ bound; else it
    is released, with the version of that moment, when the slowest has come near enough.

    Args:
        bound: s, a whole number ≥ 0; None or infinity: no bound.

    **Choice**: a worker that joins counts as level with the slowest present, whatever it had pushed
    before, so that it holds nobody back for the time it was away.

    Limits: no bound is `Async`; bound = 0 is lock-step (everybody's step s is applied, one by one,
    before anybody's step s + 1 starts).

    Reference: Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter
    Server (2013).
    """

    bound: float | None

    def __post_init__(self) -> None:
        bound = self.bound
        number = isinstance(bound, int | float) and not isinstance(bound, bool)
        require(
            bound is None or (number and bound >= 0 and (bound == inf or bound == int(bound))),
            f"bound must be a whole number of at least 0, or None (or infinity) for no bound, "
            f"got {bound!r}",
        )

    @property
    def asynchronous(self) -> bool:
        return True

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _StaleSynchronousHalf(workers, inf if self.bound is None else self.bound)


class _StaleSynchronousHalf(PushHalf):
    def __init__(self, workers: Iterable[int], bound: float) -> None:
        super().__init__(workers)
        self.bound = bound
        self.slowest = 0
        self._clocks = dict.fromkeys(self.members, 0)
        self._level = {0: len(self.members)}  # how many workers stand at each clock
        self._held: list[tuple[int, int]] = []  # (worker, clock) of pushes not answered yet
        self._admitted = 0
        """The slowest clock for which those held were last looked through."""

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        return self._step(arrival, [self.apply_one(arrival)])

    def header(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        return self._step(arrival, [])

    def _step(self, arrival: Arrival, commands: list[ShardCommand]) -> list[ShardCommand]:
        """One more step of its worker. With these commands: answer it, and those it held back, if
        they may go on."""
        if not self.present(arrival):
            return commands
        worker = arrival.worker
        clock = self._clocks[worker] + 1
        self._place(worker, clock)
        if self._held and self.slowest != self._admitted:
            self._held.append((worker, clock))
            commands += self._admit()
        elif clock - self.slowest <= self.bound:  # those held are as far away as they were
            commands.append(release(worker))
        else:
            self._held.append((worker, clock))
        return commands

    def joined(self, worker: int, now_s: float) -> list[ShardCommand]:
        self._place(worker, self.slowest)
        return []

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        self._place(worker, None)
        self._held = [(w, clock) for w, clock in self._held if w != worker]
        return self._admit()

    def _place(self, worker: int, clock: int | None) -> None:
        """Put a worker at a clock (None: nowhere) and let `slowest` follow."""
        level, before = self._level, self._clocks.get(worker)
        if clock is not None:
            self._clocks[worker] = clock
            level[clock] = level.get(clock, 0) + 1
        elif before is not None:
            del self._clocks[worker]
        if before is None:
            return
        others = level[before] - 1
        if others:
            level[before] = others
        else:
            del level[before]
            while level and self.slowest not in level:
                self.slowest += 1

    def _admit(self) -> list[ShardCommand]:
        """Answer, in worker order, every held push that is within the bound by now."""
        self._admitted = self.slowest
        farthest = self.slowest + self.bound
        free = sorted(held for held in self._held if held[1] <= farthest)
        self._held = [held for held in self._held if held[1] > farthest]
        return [release(worker) for worker, _ in free]
