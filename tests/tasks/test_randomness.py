"""The process's generators, seeded for a while and put back to the bit."""

import random
import threading
from typing import Any, cast

import numpy as np
import pytest
import torch

from tardigrad.tasks.randomness import keyed, watched


def drawn() -> list[float]:
    pair = np.random.standard_normal(1).tolist()  # leaves the second of a pair in hand
    return [torch.rand(()).item(), random.random(), random.gauss(0, 1), np.random.rand(), *pair]


def states() -> list[Any]:
    name, key, *rest = cast(tuple[Any, ...], np.random.get_state())
    return [torch.get_rng_state().tolist(), random.getstate(), name, key.tolist(), rest]


def test_what_is_drawn_follows_from_the_key_alone() -> None:
    with keyed(2**63 + 5):
        first = drawn()
    drawn()
    with keyed(2**63 + 5):
        assert drawn() == first
    with keyed(2**63 + 6):
        assert not set(drawn()) & set(first)
    with keyed(5):  # NumPy's seed has both halves of the key
        assert not set(drawn()[3:]) & set(first[3:])


@pytest.mark.parametrize("normals", [0, 1, 2, 3])
def test_the_callers_streams_go_on_as_if_nothing_had_been(normals: int) -> None:
    """With and without a normal number in hand, and after swaps that left none."""
    for _ in range(3):
        np.random.standard_normal(normals)
        before = states()
        for stream in (1, 2):
            with keyed(stream):
                drawn()
            assert states() == before
        with pytest.raises(ZeroDivisionError), keyed(3):
            assert drawn()[0] / 0
        assert states() == before
        with watched() as moved:
            assert moved() is None
            drawn()
        assert states() == before


def test_one_within_another_gives_back_what_it_took() -> None:
    with keyed(7):
        expected = [drawn(), drawn()]
    with keyed(7):
        first = drawn()
        with keyed(8):
            drawn()
        assert [first, drawn()] == expected


def test_another_kind_of_generator_is_given_back_too() -> None:
    own = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.PCG64(3))
    try:
        before = np.random.get_state(legacy=False)
        with keyed(4):
            first = np.random.rand()
        with keyed(4):
            assert np.random.rand() == first
        assert np.random.get_state(legacy=False) == before
    finally:
        np.random.mtrand.set_bit_generator(own)


@pytest.mark.parametrize(
    ("draw", "whose"),
    [
        (lambda: torch.rand(1), "torch's"),
        (random.random, "Python's"),
        (np.random.rand, "NumPy's"),
        (lambda: None, None),
    ],
)
def test_whose_generator_moved_is_told(draw: Any, whose: str | None) -> None:
    with watched() as moved:
        draw()
        assert moved() == whose


def test_the_last_of_a_pair_of_normals_is_a_move_too() -> None:
    with keyed(1):
        np.random.standard_normal()
        with watched() as moved:
            np.random.standard_normal()  # the twister's words stay
            assert moved() == "NumPy's"


def test_threads_take_turns() -> None:
    found: list[list[float]] = []

    def work() -> None:
        for _ in range(20):
            with keyed(9):
                numbers = drawn()
                threading.Event().wait(1e-4)
                found.append(numbers + drawn())

    threads = [threading.Thread(target=work) for _ in range(4)]
    before = states()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert all(numbers == found[0] for numbers in found)
    assert states() == before
