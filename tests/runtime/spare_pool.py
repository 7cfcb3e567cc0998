"""A pool that has the next processes at hand, because starting one takes longer than most runs."""

from typing import Any

import ray

from tardigrad.runtime import ActorPool
from tardigrad.runtime.actor_pool import SPREAD
from tardigrad.runtime.placement import ActorRoom
from tardigrad.runtime.reserving import ActorKind

AT_FIRST = {"worker": 5, "shard": 3}
"""One more of each kind than the largest runs of these tests take."""


class SparePool(ActorPool):
    """Begins another process as soon as one is ended, so that it starts beside the run, and the
    replacement of a killed one is there at once."""

    def __init__(self) -> None:
        super().__init__()
        self._open = True
        for kind, count in AT_FIRST.items():
            for _ in range(count):
                self._begin_spare(kind)

    def have_ready(self, workers: int) -> None:
        """Wait until a run finds so many of them that have started."""
        taken = [self.take("worker") for _ in range(workers)]
        ray.get([actor.__ray_ready__.remote() for actor in taken])
        for actor in taken:
            self.give_back(actor)

    def discard(self, actor: Any) -> None:
        made = self._kinds[actor]
        super().discard(actor)
        if self._open and not made.room.amounts():
            self._begin_spare(made.kind)

    def close(self) -> None:
        self._open = False
        super().close()

    def _begin_spare(self, kind: str) -> None:
        """Behind all others, so that it has time to start."""
        plain = ActorKind(kind, ActorRoom(self.cpus))
        self._idle.setdefault(plain, []).append(self.start(plain, SPREAD))
