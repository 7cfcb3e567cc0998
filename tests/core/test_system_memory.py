"""What the machine and its C library are asked about memory, also where they do not say."""

import ctypes
import os
from types import SimpleNamespace

import pytest

from tardigrad.core import allocation
from tardigrad.core.memory import UNKNOWN, physical_bytes


def test_a_machine_that_does_not_tell_its_memory_has_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 2**28 < physical_bytes() < UNKNOWN

    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown)
    assert physical_bytes() == UNKNOWN


def test_freed_memory_is_kept_whole_or_up_to_the_size_of_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[int, int] = {}
    library = SimpleNamespace(mallopt=asked.__setitem__)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    allocation.keep_freed_memory()
    assert asked[allocation.M_MMAP_MAX] == 0  # nothing is mapped afresh
    assert asked[allocation.M_TRIM_THRESHOLD] == allocation.NEVER
    asked.clear()
    allocation.keep_freed_batches()
    assert asked[allocation.M_MMAP_THRESHOLD] == 32 * 2**20
    assert allocation.M_MMAP_MAX not in asked


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    allocation.keep_freed_memory()
    allocation.keep_freed_batches()
