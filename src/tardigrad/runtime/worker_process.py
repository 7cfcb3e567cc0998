"""What a worker's process does, without threads, sockets and Ray: a shell feeds it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.trees import not_finite, unshared
from tardigrad.engine import Diverged
from tardigrad.links import Encoded, Sent, that_codes
from tardigrad.protocol.messages import PushHeader
from tardigrad.protocol.worker_outputs import Compute, Forget, Send, WorkerOutput
from tardigrad.protocol.worker_session import WorkerSession
from tardigrad.protocol.worker_session import WorkerStart as WorkerStart
from tardigrad.recording.gradients import RowPart, WholeGradient, row_buffers, row_part
from tardigrad.recording.kept_states import KeptState
from tardigrad.recording.sent_slices import SliceErrors, sent_slice
from tardigrad.recording.setup import RunSetup, WorkerKeeps
from tardigrad.work import changes_in_place, check_unchanged

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
        whole: Callable[[Any], Tensor | None] = lambda payload: None,
        kept: WorkerKeeps | None = None,
    ) -> None:
        """copy: writes a payload's numbers to where they belong. whole: those of a payload that are
        to be the view, valid until it is asked again; None: they have to be copied. kept: what to
        go on with; None: it begins anew."""
        self.setup = setup
        self.worker = start.worker
        gate = setup.worker_gate(start.worker)
        self.session = WorkerSession(setup.policy, setup.shards, setup.updates, start, gate)
        self._copy, self._whole = copy, whole
        self._view = setup.task.start()
        self._kept: dict[int, WholeGradient] = {}
        kept = setup.begin_state() if kept is None else kept
        self._state = kept.work
        self._codes = bool(that_codes(setup.codec))
        self._errors = SliceErrors.of(setup, kept) if setup.codec.error_feedback else None
        self._sent: dict[int, dict[int, Sent]] = {}
        """By row and shard, as a codec has made it."""
        self._wrong = 0

    def load(self, compute: Compute) -> None:
        """Complete the view."""
        for shard, payload in compute.fresh.items():
            whole = self._whole(payload) if self.setup.shards == 1 else None
            if whole is not None:
                self._view = whole
            else:
                self._copy(payload, self._view[self.setup.sharding.slice(shard)])

    def gradient(self, compute: Compute) -> ComputedGradient | None:
        """None where it was interrupted, which is heard between batches. May run beside everything
        else."""
        if self._interrupted():
            return None
        view, state = self._view, self._state
        before = changes_in_place(view, state)
        made = self.setup.run_work(
            view,
            state,
            self.worker,
            compute.step,
            compute.row,
            compute.deal,
            self._interrupted,
        )
        if made is None:
            return None
        check_unchanged(view, state, before)
        (loss, *found), state = made
        # The view's memory will hold another version, and these are kept for longer.
        (grad, buffers), state = unshared((found, state), view)
        value = float(loss)
        whole = grad if self._errors is None else self._errors.compensated(grad)
        wrong = not_finite(whole) if math.isfinite(value) else value
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
        outputs = self.session.computed(computed.loss, finite, end_s, now_s)
        if finite and self._codes:
            self._encode(compute.row, outputs)
        return outputs

    def _encode(self, row: int, outputs: list[WorkerOutput]) -> None:
        """For every shard that is sent this row, once: it may have to be said again."""
        sent = self._sent[row] = {}
        for output in outputs:
            body = output.message.body if isinstance(output, Send) else None
            if not isinstance(output, Send) or not isinstance(body, PushHeader) or body.row != row:
                continue
            shard = output.shard
            if self._errors is not None:
                part = self._kept[row].grad[self.setup.sharding.slice(shard)]
                made = self._errors.push(body, shard, part)
            elif body.crosses:
                part = self._merged(body, shard).grad
                made = sent_slice(self.setup.codec, part, body, shard)
            else:
                made = None
            if made is not None:
                sent[shard] = made

    def _pushed(self, push: PushHeader) -> list[WholeGradient]:
        return [self._kept[row] for row in (*push.merged, push.row)]

    def _merged(self, push: PushHeader, shard: int) -> RowPart:
        return row_part(self._pushed(push), self.setup.sharding, shard)

    def part(self, push: PushHeader, shard: int) -> RowPart | None:
        """The numbers behind a push, as the shard will see them; None where it has none."""
        if not push.has_numbers:
            return None
        part = self._merged(push, shard)
        if self._codes:
            seen = self._sent[push.row][shard].decoded
            part = part._replace(grad=torch.from_numpy(seen))
        return part

    def buffers(self, push: PushHeader, shard: int) -> tuple[Tensor, ...]:
        """What comes with them."""
        return row_buffers(self._pushed(push), shard) if push.has_numbers else ()

    def encoded(self, push: PushHeader, shard: int) -> Encoded | None:
        """The same as it travels; None where no codec has encoded it."""
        if not self._codes or not push.has_numbers:
            return None
        return self._sent[push.row][shard].encoded

    def unsent(self) -> dict[int, WholeGradient]:
        """What is to be merged into a later push, by row."""
        gate = self.session.gate
        return {} if gate is None else {row: self._kept[row] for row in gate.unsent()}

    def kept(self) -> KeptState | None:
        """What it keeps from row to row; None: it begins."""
        if self.session.begins_anew:
            return None
        error = () if self._errors is None else self._errors.error
        return KeptState(self.worker, WorkerKeeps(self._state, error))

    def forget(self, forgotten: Forget) -> None:
        self._kept.pop(forgotten.row, None)
        self._sent.pop(forgotten.row, None)
