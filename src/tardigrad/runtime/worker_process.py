"""What a worker's process does, without threads, sockets and Ray: a shell feeds it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from tardigrad.core.trees import not_finite
from tardigrad.engine import Diverged
from tardigrad.protocol.messages import PushHeader
from tardigrad.protocol.worker_session import Compute, Forget, WorkerOutput, WorkerSession
from tardigrad.protocol.worker_session import WorkerStart as WorkerStart
from tardigrad.recording.gradients import RowPart, WholeGradient, row_part
from tardigrad.recording.kept_states import KeptState
from tardigrad.recording.setup import RunSetup

PATIENCE = 10
"""Gradients in a row that may be NaN or infinite before the run is called diverged."""


class ComputedGradient(NamedTuple):
    step: int
    loss: float
    grad: Tensor
    buffers: tuple[Tensor, ...]
    wrong: float | None
    """The first NaN or infinity in loss or gradient."""
    state: Any = ()
    """What the worker keeps for itself if nothing is wrong."""


class WorkerProcess:
    """One life of a worker: its session, its view and the gradients that shards may still need."""

    def __init__(
        self,
        setup: RunSetup,
        start: WorkerStart,
        copy: Callable[[Any, Tensor], None],
        own: Callable[[Any], Tensor | None] = lambda payload: None,
        kept: Any | None = None,
    ) -> None:
        """copy: writes a payload's numbers to where they belong. own: those of a payload that is
        the worker's to keep; None where they belong to somebody else. kept: the state of its work
        to go on with; None: it begins anew."""
        self.setup = setup
        self.worker = start.worker
        gate = setup.worker_gate(start.worker)
        self.session = WorkerSession(setup.policy, setup.shards, setup.updates, start, gate)
        self._copy, self._own = copy, own
        self._view = setup.task.start()
        self._kept: dict[int, WholeGradient] = {}
        self._state = setup.begin_state() if kept is None else kept
        self._wrong = 0

    def load(self, compute: Compute) -> None:
        """Complete the view."""
        for shard, payload in compute.fresh.items():
            whole = self._own(payload) if self.setup.shards == 1 else None
            if whole is not None:
                self._view = whole
            else:
                self._copy(payload, self._view[self.setup.sharding.slice(shard)])

    def gradient(self, compute: Compute) -> ComputedGradient | None:
        """None where it was interrupted, which is heard between batches. May run beside everything
        else."""
        if self._interrupted():
            return None
        made = self.setup.unless_interrupted(
            self._view,
            self._state,
            self.worker,
            compute.step,
            compute.row,
            compute.deal,
            self._interrupted,
        )
        if made is None:
            return None
        (loss, grad, buffers), state = made
        value = float(loss)
        wrong = not_finite(grad) if math.isfinite(value) else value
        return ComputedGradient(compute.step, value, grad, buffers, wrong, state)

    def _interrupted(self) -> bool:
        return self.session.interrupted

    def computed(
        self, compute: Compute, computed: ComputedGradient | None, end_s: float, now_s: float
    ) -> list[WorkerOutput]:
        if computed is None or self.session.interrupted:  # it may be there, but has come too late
            return self.session.computed(math.nan, True, end_s, now_s)
        finite = computed.wrong is None
        self._wrong = 0 if finite else self._wrong + 1
        if computed.wrong is not None and self._wrong == PATIENCE:
            at = max(compute.read)
            if math.isfinite(computed.loss):
                raise Diverged(at, self.worker, computed.wrong, "a gradient")
            raise Diverged(at, self.worker, computed.loss)
        if finite:
            self._kept[compute.row] = WholeGradient(computed.grad, computed.buffers)
            self._state = computed.state
        return self.session.computed(computed.loss, finite, end_s, now_s)

    def part(self, push: PushHeader, shard: int) -> RowPart | None:
        """The numbers behind a push; None where it has none."""
        if not push.has_numbers:
            return None
        gradients = [self._kept[row] for row in (*push.merged, push.row)]
        return row_part(gradients, self.setup.sharding, shard)

    def unsent(self) -> dict[int, WholeGradient]:
        """What is to be merged into a later push, by row."""
        gate = self.session.gate
        return {} if gate is None else {row: self._kept[row] for row in gate.unsent()}

    def kept(self) -> KeptState | None:
        """What its work keeps from row to row; None: it begins."""
        return None if self.session.begins_anew else KeptState(self.worker, self._state)

    def forget(self, forgotten: Forget) -> None:
        self._kept.pop(forgotten.row, None)
