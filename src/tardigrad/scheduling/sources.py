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
NEAR = 256


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


class DrawnAhead:
    """Step times as numbers, drawn a chunk of steps at a time, and for many workers in one go.

    Where there are many workers a chunk is short, because each of them makes few steps. Who runs
    out has its neighbours' drawn too that will soon: most of what a draw costs is making it.
    """

    def __init__(self, times: StepTimes, workers: int) -> None:
        self.times = times
        self.chunk = max(4, min(CHUNK, DRAWS // workers))
        first = times.step_s(np.arange(workers)[:, None], np.arange(self.chunk)[None, :])
        self._drawn: list[list[float]] = first[:, ::-1].tolist()  # a worker's next is last
        self._until = np.full(workers, self.chunk)

    def next_s(self, worker: int) -> float:
        """Of a worker's next step: steps come in order."""
        drawn = self._drawn[worker]
        if not drawn:
            self._draw(worker)
            drawn = self._drawn[worker]
        return drawn.pop()

    def _draw(self, worker: int) -> None:
        first, all_drawn, few = worker // NEAR * NEAR, self._drawn, self.chunk // 2
        near = [first + i for i, d in enumerate(all_drawn[first : first + NEAR]) if len(d) <= few]
        steps = self._until[near, None] + np.arange(self.chunk)[::-1]
        self._until[near] += self.chunk
        more = self.times.step_s(np.array(near)[:, None], steps).tolist()
        for who, fresh in zip(near, more, strict=True):
            all_drawn[who] = fresh + all_drawn[who]


class TimedSource:
    """Step times from a time model, merged in a heap."""

    def __init__(self, times: StepTimes, workers: int) -> None:
        self._next_s = DrawnAhead(times, workers).next_s
        self._heap: list[QueuedCall] = []
        self._sequence = 0
        self._computing = [0] * workers  # the sequence number of its end in the queue
        self._abandoned: set[int] = set()

    def compute(self, worker: int, step: int, now_s: float) -> None:
        self._computing[worker] = self._sequence = sequence = self._sequence + 1
        ends_s = now_s + self._next_s(worker)
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
