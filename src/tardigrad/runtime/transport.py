"""How numbers travel: through shared memory on one node, through Ray's object store between nodes.

What travels is a *payload*: the address of a slot, or an array that Ray carries, as one object or
in pieces small enough to ride in its messages. Senders choose by who is near and how much it is;
receivers take whichever comes. A transport for GPUs would be another kind.
"""

import ctypes
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from tardigrad.runtime.arena import (
    Address,
    CutArray,
    Opened,
    Payload,
    PayloadSlots,
    Slot,
    can_share,
)
from tardigrad.runtime.messages import Packed

PIECE_BYTES = 96_000
"""What rides in a message of Ray's, its header included, must stay below 100 KiB. Anything larger
becomes an object, which the nodes' stores have to find and fetch: 5 ms and more each way."""
MOST_PIECES = 50
"""Beyond, an object is faster than its pieces, each of which costs a little."""


def count_pieces(size_bytes: int) -> int:
    """How many pieces an array of so many bytes travels in; 0: it travels as it is."""
    pieces = -(-size_bytes // PIECE_BYTES)
    return pieces if 1 < pieces <= MOST_PIECES else 0


def arguments(payload: Payload) -> Sequence[Any]:
    """A payload as arguments of a Ray call, which `received` makes one again."""
    pieces = _cut(payload)
    return (CutArray(()), *pieces) if pieces else (payload,)


def received(payload: Payload, pieces: Sequence[Any]) -> Payload:
    return CutArray(tuple(pieces)) if isinstance(payload, CutArray) else payload


def answer(packed: list[Packed], pieces: int) -> Any:
    """What a Ray call returns that has 1 + `pieces` results: `heard` makes it `packed` again."""
    if not pieces:
        return packed
    for place, (item, payload) in enumerate(packed):
        cut = _cut(payload)
        if len(cut) == pieces:
            return [*packed[:place], (item, CutArray(())), *packed[place + 1 :]], *cut
    return packed, *[None] * pieces


def heard(results: Sequence[Any]) -> list[Packed]:
    packed, *pieces = results
    return [(item, received(payload, pieces)) for item, payload in packed]


def _cut(payload: Payload) -> list[Any]:
    if not isinstance(payload, np.ndarray) or not count_pieces(payload.nbytes):
        return []
    step = PIECE_BYTES // payload.itemsize
    return [payload[at : at + step] for at in range(0, len(payload), step)]


class Shelf:
    """A shard's versions, where workers can take them."""

    def __init__(self, vector: Tensor, shared: bool) -> None:
        self._slots = PayloadSlots(len(vector), vector.dtype, readers=1)
        self._holds: dict[Address, int] = {}
        self.shared = shared and can_share()
        self._near: set[int] = set()
        self._reference: tuple[int, Any] = (-1, None)
        self._placed: tuple[Slot, Tensor] | None = None
        self.bytes_out = 0

    def connect(self, worker: int, near: bool) -> None:
        """A worker is (again) where it is; claims of its earlier life are void."""
        self._near.discard(worker)
        self._slots.release(worker)
        if near and self.shared:
            self._near.add(worker)

    def place(self) -> Tensor | None:
        """Shared memory where the next version may be made; none without near workers."""
        if not self._near:
            return None
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

    def put(self, worker: int, version: int, vector: Tensor, many: bool = False) -> Payload:
        """The payload by which this worker gets this version, which `share` gave; `many`: others
        get it too."""
        self.bytes_out += vector.numel() * vector.itemsize
        slot = self._slot(version) if worker in self._near else None
        if slot is not None:
            slot.claim(worker)
            return slot.address
        if not many or vector.numel() * vector.itemsize <= PIECE_BYTES:
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
        self._slots = PayloadSlots(size, dtype, shards)
        self._shared = shared and can_share()
        self._near: set[int] = set()

    def connect(self, shard: int, near: bool) -> None:
        self._near.discard(shard)
        self._slots.release(shard)
        if near and self._shared:
            self._near.add(shard)

    def put(self, grad: Tensor) -> "Laid":
        if not self._near:
            return Laid(grad, None, frozenset(), self._near)
        slot = self._slots.free()
        slot.write(grad)
        for shard in self._near:
            slot.claim(shard)
        return Laid(grad, slot, frozenset(self._near), self._near)

    def close(self) -> None:
        self._slots.close()


class Laid:
    """A gradient ready to be taken, until every shard has it. Through its slot only by shards that
    were near when it was laid, or the slot may have been used again, and `still` are."""

    def __init__(
        self, grad: Tensor, slot: Slot | None, near: Collection[int], still: Collection[int]
    ) -> None:
        self._grad, self._slot, self._near, self._still = grad, slot, near, still

    def payload(self, shard: int, part: slice) -> Payload:
        if self._slot is not None and shard in self._near and shard in self._still:
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
        """The numbers, not to be written to; in a slot they stay valid until `done`."""
        if isinstance(payload, Address):
            vector = self._opened[payload].vector
            return vector if part is None else vector[part]
        if isinstance(payload, CutArray):
            return torch.from_numpy(np.concatenate(payload.arrays))
        return _read_only(payload)

    def copy(self, payload: Payload, out: Tensor) -> None:
        """The same, written to `out`."""
        if not isinstance(payload, CutArray):
            out.copy_(self.look(payload))
            return
        at = 0
        for piece in payload.arrays:
            out[at : at + len(piece)].copy_(_read_only(piece))
            at += len(piece)

    def done(self, payload: Payload) -> None:
        if isinstance(payload, Address):
            self._opened[payload].done(self._reader)

    def forget(self, pid: int) -> None:
        self._opened.forget(pid)


def _read_only(array: Any) -> Tensor:
    """A tensor of an array's own memory. Ray's arrays may not be written to, of which torch warns
    every time; executors refuse rules that write to what they are given."""
    array = np.ascontiguousarray(array)
    if not array.size:
        return torch.from_numpy(array.copy())
    memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    memory.array = array  # keeps it alive
    return torch.frombuffer(memory, dtype=getattr(torch, array.dtype.name)).view(array.shape)
