"""The event loop where rows differ in their steps: a pace decides, as shard 0 hears of rows."""

from collections import deque
from heapq import heappush
from typing import Any

import numpy as np

from tardigrad.clusters import StepTimes
from tardigrad.policies import Arrival
from tardigrad.policies.pace import Pace
from tardigrad.scheduling.loop import ControlLoop
from tardigrad.scheduling.recorder import Recorder
from tardigrad.scheduling.sources import TimedSource


class PacedSource(TimedSource):
    """A row takes as long as its steps together, each worker's in order."""

    def __init__(self, times: StepTimes, recorder: Recorder) -> None:
        super().__init__(times, recorder.workers)
        self._times, self._recorder = times, recorder
        self._made = [0] * recorder.workers

    def compute(self, worker: int, step: int, now_s: float) -> None:
        """Of the row that was begun last."""
        self._computing[worker] = self._sequence = sequence = self._sequence + 1
        made, steps = self._made[worker], self._recorder.steps[-1]
        self._made[worker] = made + steps
        took_s = float(self._times.step_s(worker, made + np.arange(steps)).sum())
        heappush(self._heap, (now_s + took_s, sequence, self._finished[worker]))


class PacedLoop(ControlLoop):
    """A row's steps are decided when it starts, by what shard 0 has heard then."""

    def __init__(self, pace: Pace, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pace = pace
        self._on_their_way: list[deque[int]] = [deque() for _ in self.workers]
        """Rows of each worker that shard 0 has not heard of: their headers come in order."""

    def _start(self, worker: int, stamp: int, now_s: float) -> None:
        self.recorder.steps.append(self._pace.steps(worker))
        super()._start(worker, stamp, now_s)

    def _finished(self, worker: int, stay: int, shard: int, what: None) -> None:
        self._on_their_way[worker].append(self._row[worker])
        super()._finished(worker, stay, shard, what)

    def _arrived(self, worker: int, stay: int, shard: int, arrival: Arrival) -> None:
        self._hear(worker, stay, shard)
        arrival.steps = self.recorder.steps[arrival.row]
        super()._arrived(worker, stay, shard, arrival)

    def _header(self, worker: int, stay: int, shard: int, arrival: Arrival) -> None:
        self._hear(worker, stay, shard)
        super()._header(worker, stay, shard, arrival)

    def _hear(self, worker: int, stay: int, shard: int) -> None:
        if shard == 0:
            row, record = self._on_their_way[worker].popleft(), self.recorder
            if self.workers[worker].here(stay):
                took_s = record.end_s[row] - record.start_s[row]
                self._pace.heard(worker, record.steps[row], took_s)

    def _left(self, worker: int, stay: int, shard: int, what: None) -> None:
        if shard == 0:
            self._pace.left(worker)
        super()._left(worker, stay, shard, what)
