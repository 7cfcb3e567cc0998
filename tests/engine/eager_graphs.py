"""The GPU's executors without a GPU: what a captured graph holds, done eagerly on the CPU.

The window kernel is the CPU's, replica by replica, and nothing is compiled. What is left to try is
all the rest: placement, coefficients, samples, losses, statistics, replicas.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tardigrad.engine.fast import cuda_branches, cuda_gradients, cuda_graphs, running_statistics
from tardigrad.engine.fast.branch_gradients import BranchGradient
from tardigrad.engine.fast.branches import BranchPlan
from tardigrad.engine.fast.cuda_branches import CudaBranches, GraphKey
from tardigrad.engine.fast.cuda_graphs import CudaGraphs
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import CppKernel, Program
from tardigrad.engine.kernels.pieces import PieceShape


class WindowKernel:
    """`TritonKernel`'s interface over the CPU's kernel."""

    def __init__(self, program: Program, dtype: torch.dtype, replicas: int = 1) -> None:
        self.replicas = replicas
        self._kernel = CppKernel(program, dtype)

    def run(
        self,
        theta: Tensor,
        states: Sequence[Tensor],
        owns: Sequence[Tensor],
        grads: Tensor,
        views: Tensor,
        rows: Tensor,
        coefficients: Tensor,
        windows: Tensor,
        batch: Tensor,
    ) -> None:
        begin, end = windows[int(batch[0]) :][:2].tolist()
        stride = theta.numel() // self.replicas
        tables = [coefficients] if self.replicas == 1 else coefficients
        assert len(tables) == self.replicas
        for replica, table in enumerate(tables):
            mine = slice(replica * stride, (replica + 1) * stride)
            windows_of_it = self._kernel.bound(
                theta[mine],
                [state[mine] for state in states],
                [own[:, mine] for own in owns],
                [PieceShape(stride, stride)],
                views[:, mine],
                rows,
                table,
            )
            windows_of_it.run([grads[:, mine]], begin, end)


def move_rows(buffer: Tensor, moves: Tensor, start: Tensor, batch: Tensor, size: int) -> None:
    begin, end = start[int(batch[0]) :][:2].tolist()
    for source, target in moves[begin:end].tolist():
        buffer[target, :size] = buffer[source, :size]


def fetch_samples(
    samples: Tensor,
    start: Tensor,
    batch: Tensor,
    inputs: Tensor,
    targets: Tensor,
    chosen_inputs: Tensor,
    chosen_targets: Tensor,
    places: Tensor,
) -> None:
    torch.add(torch.arange(len(places)), int(start[int(batch[0])]), out=places)
    chosen = samples[places].flatten(0, -2)
    chosen_inputs.copy_(inputs[chosen])
    chosen_targets.copy_(targets[chosen])


def fold_rows(running: Tensor, rows: Tensor, weights: Tensor) -> None:
    for row in rows:
        running.mul_(weights[0]).add_(row * weights[1])


def _replaying(run: Callable[[], None]) -> Any:
    return SimpleNamespace(replay=run)


def captured(self: CudaGraphs, count: int, parity: int) -> Any:
    return _replaying(lambda: self._step(count, parity))


def captured_branches(self: CudaBranches, key: GraphKey, pool: object) -> Any:
    return _replaying(lambda: self._step(key))


def _in_turn(works: Sequence[Callable[[], None]], streams: Sequence[Any] = ()) -> None:
    for work in works:
        work()


def branches(job: Job, most: int = 16) -> CudaBranches:
    """Ready to run, its gradient not compiled."""
    gradient = BranchGradient(job.module, job.one_gradient)
    made = CudaBranches(job, BranchPlan.of(job), gradient, most)
    made.prepare()
    return made


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a test, the GPU's executors run on the CPU."""
    for module in (cuda_graphs, cuda_branches):
        monkeypatch.setattr(module, "TritonKernel", WindowKernel)
        monkeypatch.setattr(module, "side_by_side", _in_turn)
    monkeypatch.setattr(cuda_graphs, "move_rows", move_rows)
    monkeypatch.setattr(cuda_graphs, "fetch_samples", fetch_samples)
    monkeypatch.setattr(running_statistics, "fold_rows", fold_rows)
    monkeypatch.setattr(cuda_branches, "branch_streams", lambda device: [])
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(cuda_gradients, "compiled_by_task", {})
    monkeypatch.setattr(CudaGraphs, "captured", captured)
    monkeypatch.setattr(CudaBranches, "captured", captured_branches)
