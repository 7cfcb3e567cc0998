"""Where the event loop's next event comes from: a queue in virtual time, or an order without one.

The queue is keyed (time, priority, sequence): at equal times arrivals come before timers, and
otherwise what was put in first comes out first.
"""

import heapq
from typing import Any, NamedTuple, Protocol

import numpy as np

from tardigrad.clusters import Dispatch, StepTimes

ARRIVAL, DECISION = 0, 1
CHUNK = 64
DRAWS = 1 << 20


class QueuedEvent(NamedTuple):
    now_s: float
    kind: str
    payload: tuple[Any, ...]


class EventSource(Protocol):
    """Computing workers go in; what happens next comes out."""

    def compute(self, worker: int, step: int, now_s: float) -> None:
        """This worker begins a gradient."""
        ...

    def abandon(self, worker: int) -> None:
        """This worker will not finish its gradient."""
        ...

    def put(self, at_s: float, priority: int, kind: str, payload: tuple[Any, ...]) -> None: ...

    def pop(self) -> QueuedEvent | None: ...


class TimedSource:
    """Step times from a time model, merged in a heap."""

    def __init__(self, times: StepTimes, workers: int) -> None:
        self.times = times
        self._heap: list[tuple[float, int, int, str, tuple[Any, ...]]] = []
        self._sequence = 0
        # Draws are made a chunk of steps at a time, all workers' first chunk in one go; where there
        # are many workers a chunk is short, because each of them makes few steps.
        self.chunk = max(4, min(CHUNK, DRAWS // workers))
        first = times.step_s(np.arange(workers)[:, None], np.arange(self.chunk)[None, :])
        self._drawn: list[list[float]] = first.tolist()
        self._chunk = [0] * workers
        self._attempt = [0] * workers

    def compute(self, worker: int, step: int, now_s: float) -> None:
        chunk, at = divmod(step, self.chunk)
        if chunk != self._chunk[worker]:
            steps = np.arange(chunk * self.chunk, (chunk + 1) * self.chunk)
            self._drawn[worker] = self.times.step_s(worker, steps).tolist()
            self._chunk[worker] = chunk
        end_s = now_s + self._drawn[worker][at]
        self.put(end_s, ARRIVAL, "finished", (worker, self._attempt[worker]))

    def abandon(self, worker: int) -> None:
        self._attempt[worker] += 1

    def put(self, at_s: float, priority: int, kind: str, payload: tuple[Any, ...]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_s, priority, self._sequence, kind, payload))

    def pop(self) -> QueuedEvent | None:
        while self._heap:
            at_s, _, _, kind, payload = heapq.heappop(self._heap)
            if kind == "finished":
                worker, attempt = payload
                if attempt != self._attempt[worker]:
                    continue
                payload = (worker,)
            return QueuedEvent(at_s, kind, payload)
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

    def put(self, at_s: float, priority: int, kind: str, payload: tuple[Any, ...]) -> None:
        raise ValueError(
            "a dispatcher has no clock, so it cannot serve timers or message delays: "
            "use a cluster with times, such as Gamma"
        )

    def pop(self) -> QueuedEvent | None:
        if not self._computing or self._event == self.events:
            return None
        computing = np.array(sorted(self._computing), dtype=np.int64)
        worker = self.dispatch.next(self._event, computing)
        self._computing.discard(worker)
        self._event += 1
        return QueuedEvent(float(self._event), "finished", (worker,))
