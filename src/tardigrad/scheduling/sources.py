"""Where the event loop's next event comes from: a queue in virtual time, or an order without one.

The queue is keyed (time, priority, sequence): at equal times arrivals come before timers, and
otherwise what was put in first comes out first.
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Protocol

import numpy as np

from tardigrad.clusters import Absence, Dispatch, StepTimes
from tardigrad.scheduling.events import ARRIVAL, FINISHED, JOINS, LEAVES, Happening, Queued

CHUNK = 64
DRAWS = 1 << 20
NEAR = 256
VOID = 256
"""So many ends that will not come are let stand in the queue, and half of it at most."""


@lru_cache(maxsize=1)
def everyone(workers: int) -> tuple[int, ...]:
    """The workers' numbers, the same objects wherever they are named: of a large cluster each other
    object that an event leads to lies outside the cache."""
    return tuple(range(workers))


class EventSource(Protocol):
    """Computing workers go in; what happens next comes out."""

    def compute(self, worker: int, step: int, now_s: float) -> None:
        """This worker begins its next gradient: steps come in order."""
        ...

    def abandon(self, worker: int) -> None:
        """This worker will not finish its gradient."""
        ...

    def put(self, at_s: float, priority: int, event: Happening) -> None: ...

    def pop(self) -> Queued | None: ...


def expect(source: EventSource, absences: Sequence[Absence]) -> None:
    """Workers that will leave, and those that will return."""
    for absence in absences:
        source.put(absence.leaves_s, ARRIVAL, (LEAVES, absence.worker, 0, 0, None))
        if absence.returns_s is not None:
            source.put(absence.returns_s, ARRIVAL, (JOINS, absence.worker, 0, 0, None))


class DrawnAhead:
    """Step times as numbers, drawn a chunk of steps at a time, and for many workers in one go.

    Where there are many workers a chunk is short, because each of them makes few steps. Who runs
    out has its neighbours' drawn too that will soon: most of what a draw costs is making it.
    """

    def __init__(self, times: StepTimes, workers: int) -> None:
        self.times = times
        self.chunk = max(4, min(CHUNK, DRAWS // workers))
        first = times.step_s(np.arange(workers)[:, None], np.arange(self.chunk)[None, :])
        self.drawn: list[list[float]] = first[:, ::-1].tolist()
        """Of each worker; its next step's is last, to be popped. Where there is none, `draw`."""
        self._until = np.full(workers, self.chunk)

    def next_s(self, worker: int) -> float:
        """Of a worker's next step: steps come in order."""
        return (self.drawn[worker] or self.draw(worker)).pop()

    def draw(self, worker: int) -> list[float]:
        """More for this worker, which has none left."""
        first, all_drawn, few = worker // NEAR * NEAR, self.drawn, self.chunk // 2
        near = [first + i for i, d in enumerate(all_drawn[first : first + NEAR]) if len(d) <= few]
        steps = self._until[near, None] + np.arange(self.chunk)[::-1]
        self._until[near] += self.chunk
        more = self.times.step_s(np.array(near)[:, None], steps).tolist()
        for who, fresh in zip(near, more, strict=True):
            all_drawn[who] = fresh + all_drawn[who]
        return all_drawn[worker]


class TimedSource:
    """Step times from a time model, merged in a heap."""

    def __init__(self, times: StepTimes, workers: int) -> None:
        self._ahead = DrawnAhead(times, workers)
        self._finished: list[Happening] = [
            (FINISHED, worker, 0, 0, None) for worker in everyone(workers)
        ]
        self._heap: list[Queued] = []
        self._sequence = 0
        self._computing = [0] * workers  # the sequence number of its end in the queue
        self._abandoned: set[int] = set()

    def compute(self, worker: int, step: int, now_s: float) -> None:
        self._computing[worker] = self._sequence = sequence = self._sequence + 1
        ahead = self._ahead
        ends_s = now_s + (ahead.drawn[worker] or ahead.draw(worker)).pop()  # `next_s`, at hand
        heappush(self._heap, (ends_s, sequence, self._finished[worker]))

    def abandon(self, worker: int) -> None:
        heap, abandoned = self._heap, self._abandoned
        abandoned.add(self._computing[worker])
        if len(abandoned) > VOID and 2 * len(abandoned) > len(heap):
            heap[:] = [queued for queued in heap if queued[1] not in abandoned]
            heapify(heap)
            abandoned.clear()

    def put(self, at_s: float, priority: int, event: Happening) -> None:
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (at_s, priority + sequence, event))

    def pop(self) -> Queued | None:
        heap, abandoned = self._heap, self._abandoned
        while heap:
            queued = heappop(heap)
            if not abandoned or queued[1] not in abandoned:
                return queued
            abandoned.discard(queued[1])
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

    def put(self, at_s: float, priority: int, event: Happening) -> None:
        raise ValueError(
            "a dispatcher has no clock, so it cannot serve timers or message delays: "
            "use a cluster with times, such as Gamma"
        )

    def pop(self) -> Queued | None:
        if not self._computing or self._event == self.events:
            return None
        computing = np.array(sorted(self._computing), dtype=np.int64)
        worker = self.dispatch.next(self._event, computing)
        self._computing.discard(worker)
        self._event += 1
        return float(self._event), self._event, (FINISHED, worker, 0, 0, None)
