"""What the C library does with memory that was freed, and the system with large tensors."""

import ctypes
import mmap
from collections.abc import Mapping

from torch import Tensor

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4
NEVER = 2**31 - 1
HEAP = 64 * 1024 * 1024
"""glibc's heaps of threads; one that is empty is kept where this much may be asked for next."""


def keep_freed_memory() -> None:
    """Make this process use freed memory again instead of giving it back to the system.

    Every update makes a new vector and frees an old one. By default glibc maps large ones afresh
    each time, and the page faults cost several times what the update itself does (10M parameters:
    20 ms and more against 4). Where the C library is another one, nothing changes.
    """
    _set({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: NEVER, M_TOP_PAD: HEAP})


def keep_freed_batches() -> None:
    """The same for blocks of up to 32 MiB, which is what batches of gradients take: what is larger,
    such as the table of views, still goes back when a run ends."""
    _set({M_MMAP_THRESHOLD: HEAP // 2, M_TRIM_THRESHOLD: NEVER, M_TOP_PAD: HEAP})


def large_pages(tensor: Tensor) -> Tensor:
    """The tensor, new and not written to yet, on large pages if the system has them.

    Samples and views are read from all over hundreds of megabytes, and with small pages finding
    them takes a quarter of the time (measured: rows of 3 kB, 27.7 instead of 20.7 µs for 128).
    """
    pointer, length = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    first = -(-pointer // mmap.PAGESIZE) * mmap.PAGESIZE
    whole = (pointer + length - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if whole > 0 and hasattr(mmap, "MADV_HUGEPAGE"):
        advise = getattr(ctypes.CDLL(None), "madvise", None)
        if advise is not None:  # what it answers does not matter: it was only asked
            advise(ctypes.c_void_p(first), ctypes.c_size_t(whole), mmap.MADV_HUGEPAGE)
    return tensor


def _set(options: Mapping[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for option, value in options.items():
        mallopt(option, value)
