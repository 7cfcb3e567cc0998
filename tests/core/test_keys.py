"""Keyed randomness: known bits, right distributions, and no memory of what was asked before."""

import math

import numpy as np
import pytest

from tardigrad.core import keys

MANY = 100_000


def test_bits_are_splitmix64() -> None:
    """The published generator's first outputs for seed 1234567."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert keys.bits(1234567, np.arange(5)).tolist() == expected


def test_a_draw_depends_on_key_and_position_alone() -> None:
    stream = keys.key(5, "test", 2)
    for draw in (
        keys.bits,
        keys.uniform,
        keys.normal,
        keys.exponential,
        lambda s, p: keys.gamma(s, p, 0.4),
        lambda s, p: keys.gamma(s, p, 30.0),
        lambda s, p: keys.integers(s, p, 1000),
    ):
        forward = draw(stream, np.arange(200))
        backward = draw(stream, np.arange(200)[::-1])[::-1]
        alone = [draw(stream, i).item() for i in (0, 17, 199)]
        assert np.array_equal(forward, backward)
        assert alone == [forward[0].item(), forward[17].item(), forward[199].item()]
        table = draw(keys.keys(5, "test", 4)[:, None], np.arange(7)[None, :])
        assert table.shape == (4, 7)
        assert table[2, 3].item() == draw(keys.keys(5, "test", 3)[2], 3).item()


def test_keys_differ_in_every_part() -> None:
    made = [
        keys.key(seed, purpose, *ids)
        for seed in range(4)
        for purpose in ("step", "machine")
        for ids in ((), (0,), (1,), (0, 1), (1, 0), (10,))
    ]
    assert len(set(made)) == len(made)
    assert len(set(keys.keys(0, "step", 10_000).tolist())) == 10_000


def test_more_siblings_change_nobody() -> None:
    assert np.array_equal(keys.keys(3, "step", 5), keys.keys(3, "step", 500)[:5])


def mean_within(values: np.ndarray, mean: float, deviation: float) -> bool:
    """Five standard errors: wrong once in two million times."""
    return abs(values.mean() - mean) < 5 * deviation / math.sqrt(len(values))


def test_uniform() -> None:
    drawn = keys.uniform(keys.key(0, "u"), np.arange(MANY))
    assert 0 < drawn.min() < drawn.max() < 1
    assert mean_within(drawn, 0.5, math.sqrt(1 / 12))
    assert mean_within((drawn - 0.5) ** 2, 1 / 12, math.sqrt(1 / 180))
    counts = np.histogram(drawn, bins=100, range=(0, 1))[0]
    chi = ((counts - MANY / 100) ** 2 / (MANY / 100)).sum()
    assert abs(chi - 99) < 5 * math.sqrt(2 * 99)


def test_neighbours_are_independent() -> None:
    """Along a stream, and between sibling streams."""
    table = keys.uniform(keys.keys(1, "u", 200)[:, None], np.arange(500)[None, :]) - 0.5
    for pair in ((table[:, 1:], table[:, :-1]), (table[1:], table[:-1])):
        product = (pair[0] * pair[1]).ravel()
        assert mean_within(product, 0.0, 1 / 12)


def test_integers() -> None:
    drawn = keys.integers(keys.key(0, "i"), np.arange(MANY), 7)
    counts = np.bincount(drawn, minlength=7)
    assert len(counts) == 7
    assert (np.abs(counts - MANY / 7) < 5 * math.sqrt(MANY / 7)).all()


def test_normal() -> None:
    drawn = keys.normal(keys.key(0, "n"), np.arange(MANY))
    assert mean_within(drawn, 0.0, 1.0)
    assert mean_within(drawn**2, 1.0, math.sqrt(2))
    assert mean_within(drawn**4, 3.0, math.sqrt(96))
    assert mean_within(drawn > 1.96, 0.0249979, math.sqrt(0.025))


def test_exponential() -> None:
    drawn = keys.exponential(keys.key(0, "e"), np.arange(MANY))
    assert mean_within(drawn, 1.0, 1.0)
    assert mean_within(drawn > 2.0, math.exp(-2), math.sqrt(math.exp(-2)))


@pytest.mark.parametrize("shape", [0.2, 0.7, 1.0, 2.5, 100.0])
def test_gamma(shape: float) -> None:
    """Mean, variance and third moment of Γ(k, 1): k, k, 2k."""
    drawn = keys.gamma(keys.key(0, "g"), np.arange(MANY), shape)
    centred = drawn - shape
    assert (drawn > 0).all()
    assert mean_within(drawn, shape, math.sqrt(shape))
    assert mean_within(centred**2, shape, (centred**2).std())
    assert mean_within(centred**3, 2 * shape, (centred**3).std())


def test_gamma_of_shape_1_is_exponential_and_of_shape_half_a_squared_normal() -> None:
    one = keys.gamma(keys.key(0, "g"), np.arange(MANY), 1.0)
    half = keys.gamma(keys.key(0, "g"), np.arange(MANY), 0.5)
    for at in (0.01, 0.1, 0.5, 1.0, 3.0):
        tail = math.exp(-at)
        assert mean_within(one > at, tail, math.sqrt(tail * (1 - tail)))
        tail = math.erfc(math.sqrt(at))
        assert mean_within(half > at, tail, math.sqrt(tail * (1 - tail)))


def test_gamma_needs_a_positive_shape() -> None:
    for shape in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="shape must be positive"):
            keys.gamma(1, 0, shape)


def test_permutation() -> None:
    shuffles = [keys.permutation(keys.key(seed, "p"), 50) for seed in range(2000)]
    assert all(np.array_equal(np.sort(shuffle), np.arange(50)) for shuffle in shuffles)
    first = np.array([shuffle[0] for shuffle in shuffles])
    assert mean_within(first, 24.5, math.sqrt((50**2 - 1) / 12))
    assert np.array_equal(shuffles[3], keys.permutation(keys.key(3, "p"), 50))
