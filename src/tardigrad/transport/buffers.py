"""How numbers travel: through shared memory on one node, in frames between nodes.

What travels is a slot's address, or an array. Senders choose by who is near; receivers take
whichever comes. A transport for GPUs would be another kind.
"""

from collections.abc import Collection
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from tardigrad.transport.arena import (
    NONCE,
    PAGE,
    MappedSlots,
    SharedSlot,
    SlotAddress,
    SlotPool,
    can_share_memory,
)
from tardigrad.transport.frames import ArraySpec
from tardigrad.transport.pool import ArrayPool

SlotOrArray = SlotAddress | NDArray[Any]
"""A vector on its way: the address of its slot, or itself."""

NEAR_WORKERS = PAGE - NONCE
"""Workers with higher numbers are sent versions in frames, wherever they are: a slot's page of
flags has none for them."""


class VersionBuffers:
    """A shard's versions, where workers can take them."""

    def __init__(self, vector: Tensor, shared: bool) -> None:
        self._slots = SlotPool(len(vector), vector.dtype, NEAR_WORKERS)
        self._own, like = ArrayPool(), vector.numpy()
        self._spec = ArraySpec(like.dtype, like.shape, like.nbytes)
        self._holds: dict[SlotAddress, int] = {}
        self.shared = shared and can_share_memory()
        self._near: set[int] = set()
        self._placed: tuple[SharedSlot, Tensor] | None = None
        self.bytes_out = 0

    def connect(self, worker: int, near: bool) -> None:
        """A worker is (again) where it is; claims of its earlier life are void."""
        if worker >= NEAR_WORKERS:
            return
        self._near.discard(worker)
        self._slots.release(worker)
        if near and self.shared:
            self._near.add(worker)

    def place(self) -> Tensor:
        """Memory where the next version may be made: shared, or without near workers memory of an
        earlier one, because the system takes as long to map fresh pages as an update takes."""
        if not self._near:
            return torch.from_numpy(self._own.empty(self._spec))
        slot = self._slots.free()
        self._holds.pop(slot.address, None)
        self._placed = slot, slot.lend()
        return self._placed[1]

    def keep(self, version: int, vector: Tensor) -> Tensor:
        """The same numbers in shared memory, for the shard to use instead of its own copy: half
        the memory, and what workers take was written last. Without near workers, `vector`."""
        placed, self._placed = self._placed, None
        if placed is None:
            return self._shared(version, vector) if self._near else vector
        slot, place = placed
        if place is not vector:  # it was made elsewhere
            place.copy_(vector)
        self._holds[slot.address] = version
        return place

    def share(self, worker: int, version: int, vector: Tensor) -> Tensor:
        """The same for one version of which this worker will be told, if it is not there yet. As
        long as the shard keeps the answer, the slot stays, however often anybody is told of it."""
        if worker not in self._near:
            return vector
        slot = self._slot(version)
        if slot is None:
            return self._shared(version, vector)
        return vector if slot.lent else slot.lend()

    def _shared(self, version: int, vector: Tensor) -> Tensor:
        slot = self._slots.free()
        slot.write(vector)
        self._holds[slot.address] = version
        return slot.lend()

    def put(self, worker: int, version: int, vector: Tensor) -> SlotOrArray:
        """By which this worker gets this version, which `share` gave. An array is of the version's
        own memory: as long as it is held, on its way too, a slot is not used for another one."""
        self.bytes_out += vector.numel() * vector.itemsize
        slot = self._slot(version) if worker in self._near else None
        if slot is not None:
            slot.claim(worker)
            return slot.address
        return vector.numpy()

    def _slot(self, version: int) -> SharedSlot | None:
        for slot in self._slots.all:
            if self._holds.get(slot.address) == version:
                return slot
        return None

    def close(self) -> None:
        self._slots.close()


class GradientBuffers:
    """A worker's gradients, where shards can take their slices."""

    def __init__(self, size: int, dtype: torch.dtype, shards: int, shared: bool) -> None:
        self._slots = SlotPool(size, dtype, shards)
        self._shared = shared and can_share_memory()
        self._near: set[int] = set()

    def connect(self, shard: int, near: bool) -> None:
        """A shard is (again) where it is; claims of its earlier life are void."""
        self._near.discard(shard)
        self._slots.release(shard)
        if near and self._shared:
            self._near.add(shard)

    def put(self, grad: Tensor, takers: Collection[int] | None = None) -> "SharedGradient":
        """grad: not to be written to as long as a shard may have to be sent it (again).

        takers: the shards that will be sent it; None: all.
        """
        near = self._near if takers is None else self._near.intersection(takers)
        if not near:
            return SharedGradient(grad, None, frozenset(), self._near)
        slot = self._slots.free()
        slot.write(grad)
        for shard in near:
            slot.claim(shard)
        return SharedGradient(grad, slot, frozenset(near), self._near)

    def close(self) -> None:
        self._slots.close()


class SharedGradient:
    """A gradient ready to be taken, until every shard has it. Through its slot only by shards that
    were near when it was written, and `still` are, and once: who is told of a slot twice is done
    with it twice, and the second time may be while another gradient waits there."""

    def __init__(
        self, grad: Tensor, slot: SharedSlot | None, near: Collection[int], still: Collection[int]
    ) -> None:
        self._grad, self._slot, self._still = grad, slot, still
        self._untold = set(near)

    def payload(self, shard: int, part: slice) -> SlotOrArray:
        if self._slot is not None and shard in self._untold and shard in self._still:
            self._untold.discard(shard)
            return self._slot.address
        return self._grad[part].numpy()


class PayloadReader:
    """The receiver's side: it reads slots under its own number, a worker's or a shard's."""

    def __init__(self, reader: int, views: bool = False) -> None:
        """views: whether slots are viewed, by code that certainly writes nothing there."""
        self._reader, self._views = reader, views
        self._opened = MappedSlots(views)
        self._viewed: SlotAddress | None = None

    def there(self, payload: SlotOrArray) -> bool:
        """False where the owner of the slot has ended; once seen, a slot stays."""
        try:
            return not isinstance(payload, SlotAddress) or self._opened[payload] is not None
        except OSError:
            return False

    def look(self, payload: SlotOrArray, part: slice | None = None) -> Tensor:
        """The numbers, not to be written to; in a slot they stay valid until `done`."""
        if isinstance(payload, SlotAddress):
            vector = self._opened[payload].vector
            return vector if part is None else vector[part]
        return torch.from_numpy(payload)

    def view(self, payload: SlotOrArray) -> Tensor | None:
        """The numbers, to compute at, without a copy; None: of a slot, where none are viewed. In a
        slot they stay valid until the next call of this, however often `done` is said of them."""
        if isinstance(payload, SlotAddress) and not self._views:
            return None
        before = self._viewed
        self._viewed = payload if isinstance(payload, SlotAddress) else None
        if before is not None and before != self._viewed:
            self._opened[before].done(self._reader)
        if isinstance(payload, SlotAddress):
            return self._opened[payload].view()
        return torch.from_numpy(payload)

    def copy(self, payload: SlotOrArray, out: Tensor) -> None:
        """The same, written to `out`."""
        out.copy_(self.look(payload))

    def done(self, payload: SlotOrArray) -> None:
        if isinstance(payload, SlotAddress) and payload != self._viewed:
            self._opened[payload].done(self._reader)

    def forget(self, pid: int) -> None:
        self._opened.forget(pid)
