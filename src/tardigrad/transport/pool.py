"""Memory for arrays that come in: aligned, and used again when nobody holds an array in it."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tardigrad.transport.frames import ArraySpec

ALIGNED = 64
"""Bytes. The bits of a gradient can depend on where its numbers begin."""
SMALL_BYTES = 1 << 16
"""Below, memory costs nothing to get. Above, the system maps fresh pages at every use."""

PlaceArrays = Callable[[list[Any], Sequence[ArraySpec]], Sequence[NDArray[Any]]]
"""Says where the arrays of a frame with this header are received: for each an array of its type and
shape, in C order. They are written to until the frame is whole; where the connection ends before,
they are left half written, and the frame is never handed on."""


def aligned_bytes(size_bytes: int) -> NDArray[np.uint8]:
    memory = np.empty(size_bytes + ALIGNED, np.uint8)
    skipped = -memory.ctypes.data % ALIGNED
    return memory[skipped : skipped + size_bytes]


class _Block:
    def __init__(self, size_bytes: int) -> None:
        self.memory = aligned_bytes(size_bytes)
        self._lent: weakref.ref[NDArray[Any]] | None = None

    @property
    def free(self) -> bool:
        return self._lent is None or self._lent() is None

    def lend(self, spec: ArraySpec) -> NDArray[Any]:
        # Every view and tensor of these numbers keeps this array alive, as it does not own them.
        array = np.frombuffer(self.memory.data, spec.dtype, spec.size_bytes // spec.dtype.itemsize)
        self._lent = weakref.ref(array)
        return array.reshape(spec.shape)


class ArrayPool:
    """The default `PlaceArrays`, for one reading thread. At most `most` blocks wait unused."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._blocks: list[_Block] = []

    def __len__(self) -> int:
        """How many blocks there are, lent or not."""
        return len(self._blocks)

    def __call__(self, header: list[Any], specs: Sequence[ArraySpec]) -> list[NDArray[Any]]:
        return [self.empty(spec) for spec in specs]

    def empty(self, spec: ArraySpec) -> NDArray[Any]:
        if spec.size_bytes < SMALL_BYTES:
            return aligned_bytes(spec.size_bytes).view(spec.dtype).reshape(spec.shape)
        free = [block for block in self._blocks if block.free]
        for block in free[: -self._most]:
            self._blocks.remove(block)
        for block in reversed(free[-self._most :]):
            if spec.size_bytes <= block.memory.nbytes <= 2 * spec.size_bytes:
                return block.lend(spec)
        block = _Block(spec.size_bytes)
        self._blocks.append(block)
        return block.lend(spec)
