"""What workers keep for themselves from row to row, where their work has a state."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from tardigrad.core.arrays import Flags, Ints
from tardigrad.core.trees import named, restored
from tardigrad.engine.job import Job


class WorkerStates:
    """Each worker's, after the last of its rows that was computed.

    State follows from the schedule alone: every row that a worker pushed is computed, applied or
    dropped, in the order of its steps. It begins anew where the schedule says so (`fresh`).
    """

    def __init__(self, job: Job, used: Ints) -> None:
        """used: the rows that are applied."""
        self._job = job
        schedule = job.schedule
        self.fresh = schedule.fresh_rows
        """Where a state begins anew."""
        # What was not finite, or was interrupted, has left the state as it was.
        pushed = np.isfinite(schedule.end_s) & schedule.finite & ~schedule.interrupted
        pushed[used] = True
        last = np.full(schedule.workers, -1, dtype=np.int64)
        np.maximum.at(last, schedule.worker[used], used)
        self.wanted: Flags = pushed & (np.arange(schedule.rows) <= last[schedule.worker])
        """The rows that are computed."""
        self._rows = [
            np.nonzero(self.wanted & (schedule.worker == worker))[0].tolist()
            for worker in range(schedule.workers)
        ]
        self._done = [0] * schedule.workers
        self._states: dict[int, Any] = {}

    def before(self, row: int) -> list[int]:
        """The worker's rows that are still to be computed before this one."""
        worker = int(self._job.schedule.worker[row])
        rows = self._rows[worker]
        return rows[self._done[worker] : rows.index(row, self._done[worker])]

    def of(self, row: int) -> Any:
        """What the worker has when it computes its next row, this one."""
        worker = int(self._job.schedule.worker[row])
        if self.fresh[row] or worker not in self._states:
            return self._job.work.start(self._job.task, self._job.task.start())
        return self._states[worker]

    def after(self, row: int, state: Any) -> None:
        worker = int(self._job.schedule.worker[row])
        self._states[worker] = state
        self._done[worker] += 1

    def computed(self) -> Flags:
        """The rows that were."""
        out = np.zeros(self._job.schedule.rows, dtype=bool)
        for rows, done in zip(self._rows, self._done, strict=True):
            out[rows[:done]] = True
        return out

    def tensors(self) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        for worker, state in self._states.items():
            out |= named(state, f"work.{worker}")
        return out

    def facts(self) -> dict[str, Any]:
        return {"work": {"done": self._done, "workers": list(self._states)}}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        template = self._job.work.start(self._job.task, self._job.task.start())
        saved = facts["work"]
        self._done = list(saved["done"])
        self._states = {w: restored(template, tensors, f"work.{w}") for w in saved["workers"]}
