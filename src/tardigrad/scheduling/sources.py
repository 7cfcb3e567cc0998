"""Where the event loop's next event comes from: a queue in virtual time, or an order without one.

The queue is keyed (time, priority, sequence): at equal times arrivals come before timers, and
otherwise what was put in first comes out first.
"""

import heapq
from collections.abc import Callable
from typing import Any, Protocol, TypeVarTuple

import numpy as np

from tardigrad.clusters import Dispatch, StepTimes

ARRIVAL, DECISION = 0, 1
CHUNK = 64
DRAWS = 1 << 20


Arguments = TypeVarTuple("Arguments")
QueuedCall = tuple[float, int, int, Callable[..., None] | None, tuple[Any, ...]]
"""When, its priority and sequence, what to call (None: this worker has computed its gradient, which
happens most, and the collector of garbage need not follow None), and with what."""


class EventSource(Protocol):
    """Computing workers go in; what happens next comes out."""

    def compute(self, worker: int, step: int, now_s: float) -> None:
        """This worker begins its next gradient: steps come in order."""
        ...

    def abandon(self, worker: int) -> None:
        """This worker will not finish its gradient."""
        ...

    def put(
        self,
        at_s: float,
        priority: int,
        happens: Callable[[*Arguments], None],
        *arguments: *Arguments,
    ) -> None: ...

    def pop(self) -> QueuedCall | None: ...


class TimedSource:
    """Step times from a time model, merged in a heap."""

    def __init__(self, times: StepTimes, workers: int) -> None:
        self.times = times
        self._heap: list[QueuedCall] = []
        self._sequence = 0
        # Draws are made a chunk of steps at a time, all workers' first chunk in one go; where there
        # are many workers a chunk is short, because each of them makes few steps. A worker's next
        # is last.
        self.chunk = max(4, min(CHUNK, DRAWS // workers))
        first = times.step_s(np.arange(workers)[:, None], np.arange(self.chunk)[None, :])
        self._drawn: list[list[float]] = first[:, ::-1].tolist()
        self._computing = [0] * workers  # the sequence number of its end in the queue
        self._abandoned: set[int] = set()

    def compute(self, worker: int, step: int, now_s: float) -> None:
        drawn = self._drawn[worker]
        if not drawn:
            steps = np.arange(step, step + self.chunk)[::-1]
            drawn.extend(self.times.step_s(worker, steps).tolist())
        self._computing[worker] = self._sequence = sequence = self._sequence + 1
        ends_s = now_s + drawn.pop()
        heapq.heappush(self._heap, (ends_s, ARRIVAL, sequence, None, (worker,)))

    def abandon(self, worker: int) -> None:
        self._abandoned.add(self._computing[worker])

    def put(
        self,
        at_s: float,
        priority: int,
        happens: Callable[[*Arguments], None],
        *arguments: *Arguments,
    ) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_s, priority, self._sequence, happens, arguments))

    def pop(self) -> QueuedCall | None:
        while self._heap:
            call = heapq.heappop(self._heap)
            if call[2] not in self._abandoned:
                return call
        return None


class Dispatched:
    """Arrivals in an order that a dispatcher draws; virtual time counts them."""

    def __init__(self, dispatch: Dispatch, events: int | None = None) -> None:
        self.dispatch = dispatch
        self.events = events
        self._computing: set[int] = set()
        self._event = 0

    def compute(self, worker: int, step: int, now_s: float) -> None:
        self._computing.add(worker)

    def abandon(self, worker: int) -> None:
        self._computing.discard(worker)

    def put(
        self,
        at_s: float,
        priority: int,
        happens: Callable[[*Arguments], None],
        *arguments: *Arguments,
    ) -> None:
        raise ValueError(
            "a dispatcher has no clock, so it cannot serve timers or message delays: "
            "use a cluster with times, such as Gamma"
        )

    def pop(self) -> QueuedCall | None:
        if not self._computing or self._event == self.events:
            return None
        computing = np.array(sorted(self._computing), dtype=np.int64)
        worker = self.dispatch.next(self._event, computing)
        self._computing.discard(worker)
        self._event += 1
        return float(self._event), ARRIVAL, self._event, None, (worker,)
