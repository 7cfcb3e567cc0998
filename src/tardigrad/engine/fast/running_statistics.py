"""BatchNorm's running statistics on a GPU: one vector, into which many batches' are folded."""

import torch
from torch import Tensor

from tardigrad.engine.kernels.triton import fold_rows
from tardigrad.tasks import ModuleTask


class RunningStatistics:
    """`buffers`: the task's (`start_buffers`), as views of what is folded into."""

    def __init__(self, task: ModuleTask, start: tuple[Tensor, ...]) -> None:
        kept = [tensor for i, tensor in enumerate(start) if i % 3 < 2]
        self._all = torch.cat([tensor.reshape(-1) for tensor in kept])
        self._counts = torch.stack(start[2::3])
        momentum = task.statistics_momentum
        assert momentum is not None
        self._weights = self._all.new_tensor([1 - momentum, momentum])
        parts = iter(self._all.split([tensor.numel() for tensor in kept]))  # type: ignore[no-untyped-call]
        buffers: list[Tensor] = []
        for i, tensor in enumerate(start):
            part = self._counts[i // 3] if i % 3 == 2 else next(parts)
            buffers.append(part.view(tensor.shape))
        self.buffers = tuple(buffers)

    def fold(self, batches: Tensor) -> None:
        """Of each gradient, one a row and in their order: running ← (1 − m)·running + m·batch."""
        fold_rows(self._all, batches, self._weights)
        self._counts.add_(len(batches))
