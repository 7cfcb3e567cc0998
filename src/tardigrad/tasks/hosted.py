"""A task on a GPU beside servers whose parameters are in the host's memory.

Shards keep θ and apply rules on the CPU, whatever computes the gradients: a worker copies its view
to its GPU and the gradient back. A replay does the same, so it makes the same bits.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.tasks.precision import WORKSPACE, device_facts
from tardigrad.tasks.task import Gradient, Task, Turn

_SETTINGS: Any = torch.utils.deterministic


class Packer(Protocol):
    """How a task travels to another process."""

    def pack(self, task: Task) -> bytes:
        """Without touching a GPU when it arrives."""
        ...

    def unpack(self, packed: bytes, on_host: bool) -> Task:
        """With its tensors on the device they were on, or in the host's memory."""
        ...


def hosted(task: Task, packer: Packer | None = None) -> Task:
    """The task as servers in the host's memory see it: itself, where it is on the CPU.

    packer: needed where it is sent to other processes.
    """
    return task if task.start().device.type == "cpu" else HostedTask(task, packer)


class HostedTask:
    """Takes and gives tensors in the host's memory, and computes where the task is.

    It travels without touching a GPU, and takes one when the first gradient is computed: processes
    that compute none need none. There each kernel is one that repeats its bits; a model whose
    layers have none on the GPU is refused by name.
    """

    def __init__(self, task: Task, packer: Packer | None = None) -> None:
        self._task: Task | None = task
        self._packed = b""
        self._packer = packer
        self._start = task.start().cpu()
        self._start_buffers = _to_host(task.start_buffers())
        self.device = task.start().device
        self.device_facts = device_facts(self.device)
        self._workspace = os.environ.get(WORKSPACE)
        self.layout, self.batch_size, self.epoch_size = (
            task.layout,
            task.batch_size,
            task.epoch_size,
        )
        self._splits = tuple(task.splits)
        self._on_host: Task | None = None

    @property
    def splits(self) -> Sequence[str]:
        return self._splits

    def start(self) -> Tensor:
        return self._start.clone()

    def start_buffers(self) -> tuple[Tensor, ...]:
        return tuple(buffer.clone() for buffer in self._start_buffers)

    def gradient(self, view: Tensor, turn: Turn) -> Gradient:
        with repeatable():
            loss, grad, buffers = self._opened().gradient(view.to(self.device), turn)
        # Allocated anew: whoever gets it keeps it. Torch hands pinned memory out again.
        out = torch.empty(grad.shape, dtype=grad.dtype, pin_memory=self.device.type == "cuda")
        return Gradient(loss.cpu(), out.copy_(grad), _to_host(buffers))

    def fold(self, buffers: tuple[Tensor, ...], batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if self._on_host is None:  # of a task that is here already, fold takes what it is given
            self._on_host = self._task or self._unpacked(on_host=True)
        return self._on_host.fold(buffers, batch)

    def evaluate(
        self, params: Tensor, buffers: tuple[Tensor, ...], split: str
    ) -> Mapping[str, float]:
        there = tuple(buffer.to(self.device) for buffer in buffers)
        return self._opened().evaluate(params.to(self.device), there, split)

    def _opened(self) -> Task:
        if self._task is None:
            if self._workspace is not None:
                os.environ[WORKSPACE] = self._workspace  # before the GPU's first product
            here = device_facts(self.device)
            require(
                here == self.device_facts,
                f"this process has {here}, but the run was started where there is "
                f"{self.device_facts}: gradients would have other bits, and a recovery or replay "
                "could not repeat them. Keep workers on nodes like that one, by "
                "resources_per_worker",
            )
            self._task = self._unpacked(on_host=False)
            self._packed = b""
        return self._task

    def _unpacked(self, on_host: bool) -> Task:
        assert self._packer is not None
        return self._packer.unpack(self._packed, on_host)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self._task is not None:
            assert self._packer is not None
            state["_packed"] = self._packer.pack(self._task)
        return state | {"_task": None, "_on_host": None}


@contextmanager
def repeatable() -> Iterator[None]:
    """Within the block torch takes kernels that repeat their bits, or fails."""
    mode, settings = torch.get_deterministic_debug_mode(), _SETTINGS
    filled = settings.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")
    settings.fill_uninitialized_memory = False
    try:
        yield
    except RuntimeError as error:
        if WORKSPACE in str(error):
            raise ValueError(
                "this process used the GPU before its task was made, without the setting that lets "
                f"products repeat their bits: start it with {WORKSPACE}=:4096:8"
            ) from error
        if "deterministic" in str(error):
            first = " ".join(str(error).partition(", but")[0].split())
            raise ValueError(
                f"{first}: a recovery or replay could not repeat its bits. Use another layer or "
                "device='cpu', or simulate it"
            ) from error
        raise
    finally:
        torch.set_deterministic_debug_mode(mode)
        settings.fill_uninitialized_memory = filled


def _to_host(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor.cpu() for tensor in tensors)
