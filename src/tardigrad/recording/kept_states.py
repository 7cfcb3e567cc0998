"""What workers keep for themselves, as far as logs tell: recovery has it, and cuts save it."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from torch import Tensor

from tardigrad.core.trees import named, restored
from tardigrad.engine.checkpoint import checkpoint_bytes, checkpoint_from_bytes
from tardigrad.protocol.messages import PushHeader
from tardigrad.recording.gradients import WholeGradient
from tardigrad.recording.setup import RunSetup


class KeptState(NamedTuple):
    """A worker's, after the last gradient that it has pushed."""

    worker: int
    state: Any


class KeptStates:
    """Each worker's, after the last of its gradients that was computed again.

    Every finite gradient in the logs is, in the order of its worker's steps.
    """

    def __init__(self, setup: RunSetup) -> None:
        self._setup = setup
        self._states: dict[int, Any] = {}

    def of(self, worker: int) -> Any | None:
        """None: it has none, or it begins."""
        return self._states.get(worker)

    def forget(self, worker: int) -> None:
        self._states.pop(worker, None)

    def compute(self, push: PushHeader, view: Tensor) -> WholeGradient:
        """Again what this push brought."""
        setup = self._setup
        state = None if push.fresh else self._states.get(push.worker)
        if state is None:
            state = setup.begin_state()
        made = setup.run_work(view, state, push.worker, push.step, push.row, push.deal)
        if setup.keeps_state:
            self._states[push.worker] = made.state
        return WholeGradient(made.gradient.grad, made.gradient.buffers)

    def restore(self, data: bytes, name: str) -> None:
        tensors, facts = checkpoint_from_bytes(data, name)
        template = self._setup.begin_state()
        self._states = {w: restored(template, tensors, f"work.{w}") for w in facts["workers"]}


def states_bytes(kept: Iterable[KeptState]) -> bytes:
    tensors: dict[str, Tensor] = {}
    workers = []
    for worker, state in kept:
        tensors |= named(state, f"work.{worker}")
        workers.append(worker)
    return checkpoint_bytes(tensors, {"workers": workers})
