"""The process's own generators: torch's, Python's and NumPy's, which a user's code may draw from.

Around such code they are seeded from a key and then put back, so that what it draws is a function
of the key alone and the caller's streams are untouched. Generators that it makes for itself
(`torch.Generator`, `random.Random`, `numpy.random.default_rng`) are not seen.
"""

import ctypes
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import MT19937
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from torch import Tensor

CPU = torch.device("cpu")
MT19937_BYTES = 624 * 4 + 4
"""NumPy's state of a Mersenne twister: its words and the position among them."""

_turn = threading.RLock()
"""The generators are the whole process's, so one thread at a time may have them seeded."""


@contextmanager
def keyed(stream: int, device: torch.device = CPU) -> Iterator[None]:
    """Seed the generators from the 64-bit key `stream`, and put them back afterwards."""
    with _turn:
        python, here = random.getstate(), torch.default_generator.get_state()
        gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        back = _numpy.lend()
        try:
            torch.default_generator.manual_seed(stream)
            random.seed(stream)
            np.random.seed([stream & 0xFFFFFFFF, stream >> 32])
            if gpu is not None:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(stream)
            yield
        finally:
            torch.default_generator.set_state(here)
            random.setstate(python)
            back()
            if gpu is not None:
                torch.cuda.set_rng_state(gpu, device)


class _Lender:
    """NumPy's generator, lent out and taken back unchanged.

    Reading and writing its state takes 70 µs, more than everything else here together. So another
    twister is put in its place meanwhile. What that loses is the second of a pair of normal numbers
    that it may have in hand, which only the state tells of. None is in hand after a swap, and none
    comes to be as long as the twister's words stay the same (unless somebody puts back a state of
    just these words that has one): then nothing needs to be read.
    """

    def __init__(self) -> None:
        self._spare = MT19937(0)
        self._returned: tuple[Any, bytes] | None = None

    def lend(self) -> Callable[[], None]:
        """What takes it back."""
        own = get_bit_generator()
        if type(own) is not MT19937 or own is self._spare:
            state = np.random.get_state(legacy=False)
            return lambda: np.random.set_state(state)
        words = ctypes.string_at(own.ctypes.state_address, MT19937_BYTES)
        if self._returned is None or self._returned[0] is not own or self._returned[1] != words:
            state = np.random.get_state(legacy=False)
            if state["has_gauss"]:
                return lambda: np.random.set_state(state)
        set_bit_generator(self._spare)

        def back() -> None:
            set_bit_generator(own)
            self._returned = (own, words)

        return back


_numpy = _Lender()


class _States(NamedTuple):
    torch: Tensor
    python: tuple[Any, ...]
    numpy: Any
    gpu: Tensor | None


@contextmanager
def watched(device: torch.device = CPU) -> Iterator[Callable[[], str | None]]:
    """Put the generators back afterwards; what it gives tells whose has moved, if any has.

    Slower than `keyed`, which cannot tell.
    """
    with _turn:
        before = _states(device)

        def moved() -> str | None:
            now = _states(device)
            if now.python != before.python:
                return "Python's"
            if not _same(now.numpy, before.numpy):
                return "NumPy's"
            if not (_same(now.torch, before.torch) and _same(now.gpu, before.gpu)):
                return "torch's"
            return None

        try:
            yield moved
        finally:
            torch.default_generator.set_state(before.torch)
            random.setstate(before.python)
            np.random.set_state(before.numpy)
            if before.gpu is not None:
                torch.cuda.set_rng_state(before.gpu, device)


def _states(device: torch.device) -> _States:
    gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    numpy = np.random.get_state(legacy=False)
    return _States(torch.default_generator.get_state(), random.getstate(), numpy, gpu)


def _same(state: Any, other: Any) -> bool:
    """NumPy's states are dictionaries of dictionaries, numbers, names and arrays."""
    if isinstance(state, dict):
        return all(_same(value, other[name]) for name, value in state.items())
    if isinstance(state, Tensor):
        return torch.equal(state, other)
    return bool(np.array_equal(state, other))
