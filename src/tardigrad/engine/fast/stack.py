"""Runs of captured graphs: one, or several that share a schedule and a model, stacked as one.

The updates of a replica are bit for bit those of a single run fed the same gradients: the window
kernel treats each parameter alone. Its gradients come out of a batch that is R times larger, for
which the matrix kernels may be others, so they can differ from a single run's in the last bits.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tardigrad.core.arrays import Floats
from tardigrad.engine.fast.cuda_graphs import CudaGraphs
from tardigrad.engine.fast.on_device import STRIDE, OnDevice
from tardigrad.engine.run import Diverged


class Replica(OnDevice):
    """One run of captured graphs: the only one, or one of a stack, which advances with the others
    (`Stack`)."""

    def __init__(self, graphs: CudaGraphs, index: int = 0) -> None:
        super().__init__(graphs.jobs[index])
        self._graphs, self._index = graphs, index
        self.shards = [graphs.numbers_of(index)]
        self.diverged: Diverged | None = None
        """Set once its loss was not finite; the other replicas go on."""

    def _replay(self, until: int) -> Floats:
        return self._graphs.advance(until)[:, self._index]

    def tensors(self) -> dict[str, Tensor]:
        return self._graphs.tensors()

    def _facts(self) -> dict[str, Any]:
        return {"batch": self._graphs.batch}

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        super()._restore(tensors, facts)
        self._graphs.position, self._graphs.batch = facts["position"], facts["batch"]


class Stack:
    """Replicas that advance together."""

    def __init__(self, graphs: CudaGraphs) -> None:
        self._graphs = graphs
        self.replicas = [Replica(graphs, i) for i in range(len(graphs.jobs))]

    @property
    def updates(self) -> int:
        return self._graphs.position

    @property
    def total(self) -> int:
        return self._graphs.schedule.updates

    def advance_to(self, until: int) -> None:
        losses = self._graphs.advance(min(until, self.updates + STRIDE))
        for replica, mine in zip(self.replicas, losses.T, strict=True):
            if replica.diverged is None:
                try:
                    replica.take(mine)
                except Diverged as diverged:
                    replica.diverged = diverged
