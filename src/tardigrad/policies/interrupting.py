"""Push halves that interrupt workers whose view is too old."""

from collections.abc import Iterable

from tardigrad.policies.groups import OpenRoundHalf
from tardigrad.policies.machine import Arrival, Interrupt, PushHalf, ShardCommand


class InterruptingHalf(PushHalf):
    """Knows which version of this shard each worker computes at, and which step that is.

    It stands before another half, whose `pushed` is to be followed by `overdue`. A worker waits for
    this shard's answer before it starts, and gets one for each push: so it computes at what it was
    last released with. One that has asked for a later version computes nothing.

    Its release may still be on its way, or other shards' answers: then it is interrupted as soon as
    it starts, unless this shard has released it again by then.
    """

    def watch(self, bound: int) -> None:
        """Interrupt workers when their delay reaches `bound`. All of them begin."""
        self.bound = bound
        self._steps = dict.fromkeys(self.members, 0)
        """Of each member: the one that it computes, or will next."""
        self._views = dict.fromkeys(self.members, self.version)
        """The version that each worker computes at."""
        self._began = {self.version: set(self.members)}
        """Who was released at each of the last versions."""

    def overdue(self) -> list[ShardCommand]:
        """Interrupt those whose delay has just reached the bound: called after each update."""
        late = self.version - self.bound
        return [
            Interrupt(worker, self._steps[worker])
            for worker in sorted(self._began.pop(late, ()))
            if self._views.get(worker) == late
        ]

    def answer(self, arrival: Arrival) -> list[ShardCommand]:
        commands = super().answer(arrival)
        if commands:
            self._begin(arrival.worker, arrival.step + 1)
        return commands

    def requested(self, worker: int, at_least: int, now_s: float) -> list[ShardCommand]:
        self._views.pop(worker, None)
        return [*super().requested(worker, at_least, now_s), *self.overdue()]

    def left(self, worker: int, now_s: float) -> list[ShardCommand]:
        self._views.pop(worker, None)
        self._steps.pop(worker, None)
        return [*super().left(worker, now_s), *self.overdue()]

    def on_join(
        self, worker: int, now_s: float, stay: int = 0, step: int = 0
    ) -> list[ShardCommand]:
        commands = super().on_join(worker, now_s, stay, step)
        self._begin(worker, step)
        return commands

    def _answered(self, commands: list[ShardCommand]) -> list[ShardCommand]:
        asked = set(self.requests)
        out = super()._answered(commands)
        for worker in asked - self.requests.keys():
            self._begin(worker, self._steps[worker])
        return out

    def _begin(self, worker: int, step: int) -> None:
        self._steps[worker] = step
        self._views[worker] = self.version
        self._began.setdefault(self.version, set()).add(worker)


class InterruptingRoundHalf(InterruptingHalf, OpenRoundHalf):
    """Stands before another half of open rounds: an update interrupts all who compute for it."""

    def __init__(self, workers: Iterable[int], batch: int) -> None:
        super().__init__(workers, batch)
        self.watch(bound=1)

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        return [*super().pushed(arrival, now_s), *self.overdue()]
