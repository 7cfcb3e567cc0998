"""What workers keep for themselves, as far as logs tell: recovery has it, and cuts save it."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.trees import named, restored
from tardigrad.engine.checkpoint import checkpoint_bytes, checkpoint_from_bytes
from tardigrad.links import that_codes
from tardigrad.protocol.messages import PushHeader
from tardigrad.recording.gradients import RowPart, WholeGradient, row_part
from tardigrad.recording.sent_slices import SliceErrors, sent_slice
from tardigrad.recording.setup import RunSetup, WorkerKeeps
from tardigrad.work import delivered


class KeptState(NamedTuple):
    """A worker's, after the last gradient that it has pushed."""

    worker: int
    state: WorkerKeeps


class KeptStates:
    """Each worker's, after the last of its gradients that was computed again.

    Every finite gradient in the logs is, in the order of its worker's steps.
    """

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._states: dict[int, Any] = {}
        """Of their works."""
        self._errors: dict[int, SliceErrors] = {}

    def of(self, worker: int) -> WorkerKeeps | None:
        """None: it has none, or it begins."""
        if worker not in self._states:
            return None
        errors = self._errors.get(worker)
        return WorkerKeeps(self._states[worker], () if errors is None else errors.error)

    def forget(self, worker: int) -> None:
        self._states.pop(worker, None)
        self._errors.pop(worker, None)

    def compute(self, push: PushHeader, view: Tensor) -> WholeGradient:
        """Again what this push brought."""
        setup = self._setup
        state = None if push.fresh else self._states.get(push.worker)
        if state is None:
            state = setup.begin_state().work
        made = delivered(setup.run_work(view, state, push.worker, push.step, push.row, push.deal))
        if setup.keeps_state:
            self._states[push.worker] = made.state
        return WholeGradient(made.gradient.grad, made.gradient.buffers)

    def part(
        self, push: PushHeader, shard: int, gradients: Sequence[WholeGradient]
    ) -> RowPart | None:
        """What a shard sees of a push and of those merged into it, which come first; None where a
        gate holds it back. Asked once for each shard, in the order of steps."""
        setup = self._setup
        if not push.crosses and not setup.codec.error_feedback:
            return None
        part = row_part(gradients, setup.sharding, shard)
        if not that_codes(setup.codec):
            return part
        if setup.codec.error_feedback:
            own = gradients[-1].grad[setup.sharding.slice(shard)]
            sent = self._errors_of(push.worker).push(push, shard, own)
        else:
            sent = sent_slice(setup.codec, part.grad, push, shard)
        return None if sent is None else part._replace(grad=torch.from_numpy(sent.decoded))

    def _errors_of(self, worker: int) -> SliceErrors:
        if worker not in self._errors:
            self._errors[worker] = SliceErrors.of(self._setup, self._setup.begin_state())
        return self._errors[worker]

    def restore(self, data: bytes, name: str) -> None:
        tensors, facts = checkpoint_from_bytes(data, name)
        template = self._setup.begin_state()
        for worker in facts["workers"]:
            kept: WorkerKeeps = restored(template, tensors, f"kept.{worker}")
            self._states[worker] = kept.work
            if self._setup.codec.error_feedback:
                self._errors[worker] = SliceErrors.of(self._setup, kept)


def workers_in(data: bytes, name: str) -> set[int]:
    """Whose states a cut has."""
    return set(checkpoint_from_bytes(data, name)[1]["workers"])


def states_bytes(kept: Iterable[KeptState]) -> bytes:
    tensors: dict[str, Tensor] = {}
    workers = []
    for worker, state in kept:
        tensors |= named(state, f"kept.{worker}")
        workers.append(worker)
    return checkpoint_bytes(tensors, {"workers": workers})
