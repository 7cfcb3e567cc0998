"""A run on a GPU as its driver sees it: replayed in long strides, looked at between them."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from tardigrad.core.arrays import Floats
from tardigrad.engine.execution import Execution, check_same_shapes
from tardigrad.engine.run import Diverged

STRIDE = 5000
"""Updates between two looks at the GPU, where nothing else stops it."""


class OnDevice(Execution):
    """A one-shard schedule of single gradients or rounds, executed by captured graphs."""

    name = "fast"

    def advance_to(self, until: int) -> None:
        self.take(self._replay(min(until, self.updates + STRIDE)))

    @abstractmethod
    def _replay(self, until: int) -> Floats:
        """Make the updates up to `until`; their losses, one each or (updates, gradients)."""

    def take(self, losses: Floats) -> None:
        """Write down the losses of the next updates, which have been made."""
        begin = self.position
        self.position += len(losses)
        each = losses if losses.ndim == 2 else losses[:, None]
        bad = np.argwhere(~np.isfinite(each))
        if len(bad):
            update, gradient = bad[0].tolist()
            row = self.schedule.group(begin + update)[gradient]
            worker = int(self.schedule.worker[row])
            raise Diverged(begin + update, worker, float(each[update, gradient]))
        self.history.loss += each.mean(1).tolist()

    def _facts(self) -> dict[str, Any]:
        return {}

    def _check_same(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        check_same_shapes(self.tensors(), tensors)

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
