"""Ringmaster and Rennala with interrupts as plain loops, written from their algorithms.

One server, messages that all take the same time, workers whose step times are given. Nothing of
the event loop or of the policies is used.
"""

from collections import defaultdict
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np


class Interrupted(NamedTuple):
    worker: int
    step: int
    time_s: float


class Course(NamedTuple):
    times_s: list[float]
    """Of the updates,"""
    rows: list[list[tuple[int, int]]]
    """and what each was made of: (worker, step)."""
    dropped: list[tuple[int, int]]
    interrupted: list[Interrupted]
    x: float


class Reference:
    """x ← x − rate · mean of the gradients, for f = x²/2 from x = 1."""

    def __init__(self, step_s: "np.ndarray[Any, Any]", latency_s: float, rate: float) -> None:
        self.step_s, self.latency_s, self.rate = step_s, latency_s, rate
        self.workers = len(step_s)
        self.heap: list[tuple[float, int, tuple[Any, ...]]] = []
        self.sequence = 0
        self.now_s = 0.0
        self.points = [1.0]
        self.times_s: list[float] = []
        self.rows: list[list[tuple[int, int]]] = []
        self.dropped: list[tuple[int, int]] = []
        self.stopped: list[Interrupted] = []
        self.computing: dict[int, tuple[int, int]] = {}
        """At the workers: step and view."""
        self.believed: dict[int, tuple[int, int]] = {}
        """The same, as the server knows it."""
        for worker in range(self.workers):
            self.believed[worker] = (0, 0)
            self.begin(worker, 0, 0)

    def after(self, seconds: float, *event: Any) -> None:
        self.sequence += 1
        heappush(self.heap, (self.now_s + seconds, self.sequence, event))

    def begin(self, worker: int, step: int, view: int) -> None:
        self.computing[worker] = (step, view)
        self.after(float(self.step_s[worker, step]), "done", worker, step, view)

    def release(self, worker: int, step: int) -> None:
        version = len(self.times_s)
        self.believed[worker] = (step, version)
        self.after(self.latency_s, "released", worker, step, version)

    def interrupt(self, worker: int) -> None:
        self.after(self.latency_s, "interrupt", worker, self.believed[worker][0])

    def update(self, group: list[tuple[int, int, int]]) -> None:
        mean = sum(self.points[view] for _, _, view in group) / len(group)
        self.points.append(self.points[-1] - self.rate * mean)
        self.times_s.append(self.now_s)
        self.rows.append(sorted((worker, step) for worker, step, _ in group))

    def course(self, updates: int) -> Course:
        while len(self.times_s) < updates:
            self.now_s, _, (what, worker, step, *more) = heappop(self.heap)
            if what == "done" and self.computing.get(worker) == (step, *more):
                del self.computing[worker]
                self.after(self.latency_s, "pushed", worker, step, *more)
            elif what == "interrupt" and self.computing.get(worker, (None,))[0] == step:
                del self.computing[worker]
                self.stopped.append(Interrupted(worker, step, self.now_s))
                self.after(self.latency_s, "stopped", worker, step)
            elif what == "released":
                self.begin(worker, step, *more)
            elif what == "stopped":
                self.release(worker, step + 1)
            elif what == "pushed":
                del self.believed[worker]
                self.pushed(worker, step, *more)
        return Course(self.times_s, self.rows, self.dropped, self.stopped, self.points[-1])

    def pushed(self, worker: int, step: int, view: int) -> None:
        raise NotImplementedError


class RingmasterReference(Reference):
    """Algorithm 5: accept iff the delay is below R; stop whose delay reaches R."""

    def __init__(self, bound: int, *about: Any) -> None:
        self.bound = bound
        super().__init__(*about)

    def pushed(self, worker: int, step: int, view: int) -> None:
        applied = len(self.times_s) - view < self.bound
        if applied:
            self.update([(worker, step, view)])
        else:
            self.dropped.append((worker, step))
        self.release(worker, step + 1)
        if applied:
            for other, (_, at) in sorted(self.believed.items()):
                if len(self.times_s) - at == self.bound:
                    self.interrupt(other)


class RennalaReference(Reference):
    """Batches of B gradients at the current point; when one is full the others stop."""

    def __init__(self, batch: int, *about: Any) -> None:
        self.batch = batch
        self.gathered: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        super().__init__(*about)

    def pushed(self, worker: int, step: int, view: int) -> None:
        version = len(self.times_s)
        if view < version:
            self.dropped.append((worker, step))
            self.release(worker, step + 1)
            return
        self.gathered[version].append((worker, step, view))
        full = len(self.gathered[version]) == self.batch
        if full:
            self.update(self.gathered[version])
        self.release(worker, step + 1)
        if full:
            for other, (_, at) in sorted(self.believed.items()):
                if at == version:
                    self.interrupt(other)
