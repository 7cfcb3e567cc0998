"""How numbers travel: through shared memory on one node, through Ray's object store between nodes.

What travels is a *payload*: the address of a slot, or an array that Ray carries. Senders choose by
who is near; receivers take whichever comes. A transport for GPUs would be a third kind.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from tardigrad.runtime.arena import Address, Opened, Payload, Slot, Slots, can_share

INLINE_BYTES = 100_000
"""Larger arguments go through the object store: once per call, or once for all by reference."""


class Shelf:
    """A shard's versions, where workers can take them."""

    def __init__(self, vector: Tensor, shared: bool) -> None:
        self._slots = Slots(len(vector), vector.dtype, readers=1)
        self._holds: dict[Address, int] = {}
        self.shared = shared and can_share()
        self._near: set[int] = set()
        self._reference: tuple[int, Any] = (-1, None)
        self.bytes_out = 0

    def connect(self, worker: int, near: bool) -> None:
        """A worker is (again) where it is; claims of its earlier life are void."""
        self._near.discard(worker)
        self._slots.release(worker)
        if near and self.shared:
            self._near.add(worker)

    def keep(self, version: int, vector: Tensor) -> Tensor:
        """The same numbers in shared memory, for the shard to use instead of its own copy: half
        the memory, and what workers take was written last. Without near workers, `vector`."""
        if not self._near:
            return vector
        slot = self._slots.free()
        slot.write(vector)
        self._holds[slot.address] = version
        return slot.lend()

    def put(self, worker: int, version: int, vector: Tensor, many: bool = False) -> Payload:
        """The payload by which this worker gets this version; `many`: others get it too."""
        self.bytes_out += vector.numel() * vector.itemsize
        if worker in self._near:
            slot = self._slot(version)
            if slot is None:
                slot = self._slots.free()
                slot.write(vector)
                self._holds[slot.address] = version
            slot.claim(worker)
            return slot.address
        if not many or vector.numel() * vector.itemsize <= INLINE_BYTES:
            return vector.numpy()
        if self._reference[0] != version:
            self._reference = (version, ray.put(vector.numpy()))
        return self._reference[1]

    def _slot(self, version: int) -> Slot | None:
        for slot in self._slots.all:
            if self._holds.get(slot.address) == version:
                return slot
        return None

    def close(self) -> None:
        self._slots.close()


class Tray:
    """A worker's gradients, where shards can take their slices."""

    def __init__(self, size: int, dtype: torch.dtype, shards: int, shared: bool) -> None:
        self._slots = Slots(size, dtype, shards)
        self._shared = shared and can_share()
        self._near: set[int] = set()

    def connect(self, shard: int, near: bool) -> None:
        self._near.discard(shard)
        self._slots.release(shard)
        if near and self._shared:
            self._near.add(shard)

    def put(self, grad: Tensor) -> "Laid":
        if not self._near:
            return Laid(grad, None, frozenset())
        slot = self._slots.free()
        slot.write(grad)
        for shard in self._near:
            slot.claim(shard)
        return Laid(grad, slot, frozenset(self._near))

    def close(self) -> None:
        self._slots.close()


class Laid:
    """A gradient ready to be taken, until every shard has it."""

    def __init__(self, grad: Tensor, slot: Slot | None, near: Collection[int]) -> None:
        self._grad, self._slot, self._near = grad, slot, near

    def payload(self, shard: int, part: slice) -> Payload:
        if self._slot is not None and shard in self._near:
            self._slot.claim(shard)
            return self._slot.address
        return self._grad[part].numpy()


class Taken:
    """The receiver's side of payloads that are whole vectors or slots."""

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self._opened = Opened()

    def there(self, payload: Payload) -> bool:
        """False where the owner of the slot has ended; once seen, a slot stays."""
        try:
            return not isinstance(payload, Address) or self._opened[payload] is not None
        except OSError:
            return False

    def look(self, payload: Payload, part: slice | None = None) -> Tensor:
        """The numbers; in a slot they stay valid until `done`."""
        if isinstance(payload, Address):
            vector = self._opened[payload].vector
            return vector if part is None else vector[part]
        out = torch.empty(payload.shape, dtype=getattr(torch, payload.dtype.name))
        np.copyto(out.numpy(), payload)  # Ray's arrays are read-only, and torch wants its own
        return out

    def done(self, payload: Payload) -> None:
        if isinstance(payload, Address):
            self._opened[payload].done(self._reader)

    def forget(self, pid: int) -> None:
        self._opened.forget(pid)
