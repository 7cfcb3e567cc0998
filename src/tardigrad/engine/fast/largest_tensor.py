"""The largest tensor that is made while a gradient is computed: activations, mostly."""

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tardigrad.engine.job import Job
from tardigrad.tasks import Turn


def largest_bytes(job: Job) -> int:
    """Of the first row's gradient. A function of the task alone, not of the machine."""
    watch = _Watch()
    with watch:
        job.one_gradient.run(job.task, job.task.start(), (), Turn(0, 0, 0), 1)
    return watch.largest


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation, those of the backward pass too."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        tensors = (one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor))
        given = {one.untyped_storage().data_ptr() for one in tensors}
        for one in tree_leaves(made):
            # What lies in memory that was there before, such as a data set's, was not made.
            memory = one.untyped_storage() if isinstance(one, Tensor) else None
            if memory is not None and memory.data_ptr() not in given:
                self.largest = max(self.largest, memory.nbytes())
        return made
