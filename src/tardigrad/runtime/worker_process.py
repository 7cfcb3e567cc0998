"""What a worker's process does, without threads, sockets and Ray: a shell feeds it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from tardigrad.core.trees import not_finite
from tardigrad.engine import Diverged
from tardigrad.protocol.worker_session import Compute, Forget, WorkerOutput, WorkerSession
from tardigrad.protocol.worker_session import WorkerStart as WorkerStart
from tardigrad.recording.recovery import RowPart
from tardigrad.recording.setup import RunSetup
from tardigrad.tasks import Turn

PATIENCE = 10
"""Gradients in a row that may be NaN or infinite before the run is called diverged."""


class ComputedGradient(NamedTuple):
    step: int
    loss: float
    grad: Tensor
    buffers: tuple[Tensor, ...]
    wrong: float | None
    """The first NaN or infinity in loss or gradient."""


class WorkerProcess:
    """One life of a worker: its session, its view and the gradients that shards may still need."""

    def __init__(
        self, setup: RunSetup, start: WorkerStart, copy: Callable[[Any, Tensor], None]
    ) -> None:
        self.setup = setup
        self.worker = start.worker
        self.session = WorkerSession(setup.policy, setup.shards, setup.updates, start)
        self._copy = copy
        """Writes a payload's numbers to where they belong."""
        self._view = setup.task.start()
        self._kept: dict[int, ComputedGradient] = {}
        self._wrong = 0

    def load(self, compute: Compute) -> None:
        """Complete the view."""
        for shard, payload in compute.fresh.items():
            self._copy(payload, self._view[self.setup.sharding.slice(shard)])

    def gradient(self, compute: Compute) -> ComputedGradient:
        """May run beside everything else."""
        turn = Turn(self.worker, compute.step, compute.row)
        loss, grad, buffers = self.setup.task.gradient(self._view, turn)
        grad = self.setup.rule.prepare(grad)
        value = float(loss)
        wrong = not_finite(grad) if math.isfinite(value) else value
        return ComputedGradient(compute.step, value, grad, buffers, wrong)

    def computed(
        self, compute: Compute, computed: ComputedGradient, end_s: float, now_s: float
    ) -> list[WorkerOutput]:
        finite = computed.wrong is None
        self._wrong = 0 if finite else self._wrong + 1
        if computed.wrong is not None and self._wrong == PATIENCE:
            at = max(compute.read)
            if math.isfinite(computed.loss):
                raise Diverged(at, self.worker, computed.wrong, "a gradient")
            raise Diverged(at, self.worker, computed.loss)
        if finite:
            self._kept[computed.step] = computed
        return self.session.computed(computed.loss, finite, end_s, now_s)

    def part(self, step: int, shard: int) -> RowPart | None:
        """A shard's slice of a gradient; None where it was not finite."""
        kept = self._kept.get(step)
        if kept is None:
            return None
        return RowPart(
            kept.grad[self.setup.sharding.slice(shard)], kept.buffers if shard == 0 else ()
        )

    def forget(self, forgotten: Forget) -> None:
        self._kept.pop(forgotten.step, None)
