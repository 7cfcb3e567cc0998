"""Memory that processes of one machine share: one slot is one anonymous file.

An anonymous file (memfd) has no name to clean up: another process of the same user opens it through
its owner's /proc/PID/fd, and the memory goes when the last process that mapped it goes, however it
went. So nothing is left behind after a kill.

A slot begins with a page of flags, one byte per reader: the owner sets a reader's flag when it
tells it of the slot, the reader clears it when it is done, and the owner writes again only when all
are clear. Each byte has one writer at a time, so no lock is needed. The owner may use a slot's
vector too, as long as it likes (`SharedSlot.lend`).
"""

import mmap
import os
import secrets
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import require

PAGE = 4096
NONCE = 8
DTYPES = {name: getattr(torch, name) for name in ["float32", "float64"]}
"""What a slot's vector may hold, by the name that travels."""


class SlotAddress(NamedTuple):
    """Where a slot is found. The nonce tells a slot from another under a number used again."""

    pid: int
    file: int
    length: int
    data_at: int
    nonce: bytes
    dtype: str

    def plain(self) -> list[Any]:
        """For a frame's header."""
        return [*self[:4], self.nonce.hex(), self.dtype]

    @staticmethod
    def from_plain(plain: Any) -> "SlotAddress":
        """What `plain` made, from a peer: anything else is refused."""
        types = [int, int, int, int, str, str]
        if not isinstance(plain, list) or [type(item) for item in plain] != types:
            raise ValueError(f"{plain!r} is no address of a slot")
        pid, file, length, data_at, nonce, dtype = plain
        if min(pid, file) < 0 or not 0 < data_at <= length or dtype not in DTYPES:
            raise ValueError(f"{plain!r} is no address of a slot")
        return SlotAddress(pid, file, length, data_at, bytes.fromhex(nonce), dtype)


def can_share_memory() -> bool:
    """Whether this system has what slots need (Linux)."""
    return hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


class SharedSlot:
    """A vector in shared memory, and who still reads it."""

    def __init__(self, memory: mmap.mmap, address: SlotAddress, alone: mmap.mmap | None) -> None:
        """alone: the same memory, where what is written is seen by nobody else."""
        self.address = address
        self._memory, self._alone = memory, alone
        self._lent: weakref.ref[memoryview] | None = None
        self.vector = self._tensor(memory)

    def _tensor(self, memory: mmap.mmap | memoryview) -> Tensor:
        dtype = DTYPES[self.address.dtype]
        count = (self.address.length - self.address.data_at) // dtype.itemsize
        return torch.frombuffer(memory, dtype=dtype, count=count, offset=self.address.data_at)

    @staticmethod
    def make(size: int, dtype: torch.dtype, readers: int) -> "SharedSlot":
        name = str(dtype).removeprefix("torch.")
        require(name in DTYPES, f"a vector of {name} cannot be shared: {', '.join(DTYPES)} can")
        data_at = -(-(NONCE + readers) // PAGE) * PAGE
        length = data_at + size * dtype.itemsize
        file = os.memfd_create("tardigrad", os.MFD_CLOEXEC)
        os.ftruncate(file, length)
        memory = mmap.mmap(file, length)
        nonce = secrets.token_bytes(NONCE)
        memory[:NONCE] = nonce
        address = SlotAddress(os.getpid(), file, length, data_at, nonce, name)
        return SharedSlot(memory, address, None)

    @staticmethod
    def open(address: SlotAddress, to_view: bool = False) -> "SharedSlot":
        """to_view: `view` will be asked for."""
        file = os.open(f"/proc/{address.pid}/fd/{address.file}", os.O_RDWR | os.O_CLOEXEC)
        try:
            memory = mmap.mmap(file, address.length)
            alone = mmap.mmap(file, address.length, mmap.MAP_PRIVATE) if to_view else None
        except ValueError as error:  # another file, and shorter
            raise OSError("the slot is gone: its owner has ended") from error
        finally:
            os.close(file)
        if memory[:NONCE] != address.nonce:
            raise OSError("the slot is gone: its owner has ended")
        return SharedSlot(memory, address, alone)

    def claim(self, reader: int) -> None:
        self._memory[NONCE + reader] = 1

    def done(self, reader: int) -> None:
        self._memory[NONCE + reader] = 0

    @property
    def lent(self) -> bool:
        return self._lent is not None and self._lent() is not None

    @property
    def free(self) -> bool:
        if self.lent:
            return False
        flags = self._memory[NONCE : self.address.data_at]
        return flags.count(0) == len(flags)

    def lend(self) -> Tensor:
        """The vector, for the owner's own use: the slot is not free while any tensor or array of
        this memory is alive, which keep the memory's object alive and nothing else does."""
        memory = memoryview(self._memory)
        self._lent = weakref.ref(memory)
        return self._tensor(memory)

    def view(self) -> Tensor:
        """The vector, for code that should not write to it: if it does, nobody else sees that."""
        assert self._alone is not None
        return self._tensor(self._alone)

    def write(self, vector: Tensor) -> None:
        self.vector.copy_(vector)

    def close(self) -> None:
        """Give the owner's file back; the memory goes with the last mapping."""
        if self.address.pid == os.getpid():
            os.close(self.address.file)


class SlotPool:
    """The owner's slots, as many as are in use at once and never fewer than that."""

    def __init__(self, size: int, dtype: torch.dtype, readers: int) -> None:
        self._size, self._dtype, self._readers = size, dtype, readers
        self.all: list[SharedSlot] = []

    def free(self) -> SharedSlot:
        """One that nobody reads."""
        for slot in self.all:
            if slot.free:
                return slot
        slot = SharedSlot.make(self._size, self._dtype, self._readers)
        self.all.append(slot)
        return slot

    def release(self, reader: int) -> None:
        """A reader is gone, and with it its claims."""
        for slot in self.all:
            slot.done(reader)

    def close(self) -> None:
        for slot in self.all:
            slot.close()
        self.all = []


class MappedSlots:
    """The reader's side: slots of others, mapped once."""

    def __init__(self, to_view: bool = False) -> None:
        self._to_view = to_view
        self._slots: dict[SlotAddress, SharedSlot] = {}

    def __getitem__(self, address: SlotAddress) -> SharedSlot:
        slot = self._slots.get(address)
        if slot is None:
            slot = self._slots[address] = SharedSlot.open(address, self._to_view)
        return slot

    def forget(self, pid: int) -> None:
        """Drop what belonged to a process that has ended."""
        for address in [a for a in self._slots if a.pid == pid]:
            del self._slots[address]
