"""Each codec beside its slow twin; what travels, and what is refused."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tardigrad as tg
from tardigrad.core.keys import bits, key
from tardigrad.links import CODECS, SliceOf, send
from tests.links import codec_references as reference

OF = SliceOf(worker=3, step=5, shard=1)
LENGTHS = (1, 2, 7, 8, 9, 64, 100)


def drawn(length: int, dtype: Any = np.float64) -> NDArray[Any]:
    """With zeros of both signs and equal sizes among them."""
    values = np.random.default_rng(length).normal(size=length)
    values[::5] = 0.0
    values[3::7] = -0.0
    values[2::6] = 0.75
    values[4::6] = -0.75
    return values.astype(dtype)


def by_lot(values: list[float], share: float, seed: int) -> list[float]:
    stream = key(seed, "random_k", *OF)
    draws = [int(bits(stream, i)) for i in range(len(values))]
    return reference.chosen(values, draws, max(1, round(share * len(values))))


CASES: dict[str, tuple[tg.Codec, reference.Coded]] = {
    "identity": (tg.Identity(), list),
    "top_k": (tg.TopK(0.2), lambda v: reference.top_k(v, max(1, round(0.2 * len(v))))),
    "top_k of all": (tg.TopK(1.0), lambda v: reference.top_k(v, len(v))),
    "random_k": (tg.RandomK(0.3, seed=4), lambda v: by_lot(v, 0.3, 4)),
    "sign": (tg.Sign(), reference.sign),
    "int8": (tg.Int8(), lambda v: reference.int8(v, 1024)),
    "int8 in blocks": (tg.Int8(block=3), lambda v: reference.int8(v, 3)),
}


def test_every_codec_has_a_twin() -> None:
    assert {type(codec) for codec, _ in CASES.values()} == set(CODECS.values())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", CASES)
def test_what_the_shard_sees_is_what_the_formula_says(name: str, length: int) -> None:
    codec, coded = CASES[name]
    values = drawn(length)
    got = codec.decode(codec.encode(values, OF), length)
    assert np.abs(got - coded(values.tolist())).max() <= 1e-12


@pytest.mark.parametrize("name", CASES)
def test_errors_are_fed_back_as_the_formula_says(name: str) -> None:
    codec, coded = CASES[name]
    twin = reference.FedBack(50)
    error: NDArray[Any] = np.zeros(50)
    for step in range(40):
        grad = np.random.default_rng(step).normal(size=50)
        held = step % 4 == 2
        expected = twin.push(grad.tolist(), coded, held)
        if held:
            error = error + grad
            continue
        sent = send(codec, error + grad, OF)
        error = sent.error
        assert expected is not None
        assert np.abs(sent.decoded - expected).max() <= 1e-12
        assert np.abs(error - twin.error).max() <= 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", CASES)
def test_bytes_are_known_from_the_length_alone(name: str, length: int, dtype: Any) -> None:
    codec, _ = CASES[name]
    encoded = codec.encode(drawn(length, dtype), OF)
    size = np.dtype(dtype).itemsize
    assert sum(array.nbytes for array in encoded) == codec.encoded_bytes(length, size)
    assert all(array.ndim == 1 for array in encoded)
    assert codec.decode(encoded, length).dtype == dtype


def test_bytes_are_what_the_page_says() -> None:
    million = 1_000_000
    assert tg.Identity().encoded_bytes(million, 4) == 4_000_000
    assert tg.TopK(0.01).encoded_bytes(million, 4) == 80_000
    assert tg.RandomK(0.01).encoded_bytes(million, 4) == 40_008
    assert tg.Sign().encoded_bytes(million, 4) == 125_004
    assert tg.Int8().encoded_bytes(million, 4) == 1_003_908


@pytest.mark.parametrize("name", [name for name in CASES if name != "identity"])
def test_an_error_is_smaller_than_what_was_sent(name: str) -> None:
    codec, _ = CASES[name]
    for length in LENGTHS:
        values = drawn(length, np.float32) + np.float32(0.01)
        assert np.linalg.norm(send(codec, values, OF).error) < np.linalg.norm(values)


def test_of_equal_sizes_the_lower_position_is_sent() -> None:
    positions, values = tg.TopK(0.5).encode(np.array([1.0, -2.0, 2.0, 1.0, -1.0, 0.5]), OF)
    assert positions.tolist() == [0, 1, 2]
    assert values.tolist() == [1.0, -2.0, 2.0]
    positions, _ = tg.TopK(0.5).encode(np.zeros(6), OF)
    assert positions.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("share", "length", "k"), [(0.01, 10, 1), (0.07, 100, 7), (0.29, 100, 29), (1.0, 9, 9)]
)
def test_a_share_is_the_nearest_whole_number_and_at_least_one(
    share: float, length: int, k: int
) -> None:
    for codec in (tg.TopK(share), tg.RandomK(share)):
        _, values = codec.encode(drawn(length), OF)
        assert len(values) == k


def test_lots_are_keyed_by_seed_worker_step_and_shard() -> None:
    values = np.arange(1.0, 1001.0)

    def sent(of: SliceOf, seed: int = 0) -> list[float]:
        return tg.RandomK(0.1, seed=seed).encode(values, of)[1].tolist()

    others = [OF._replace(worker=4), OF._replace(step=6), OF._replace(shard=0)]
    different = [sent(OF), sent(OF, seed=1), *(sent(of) for of in others)]
    assert sent(OF) == different[0]
    assert len({tuple(one) for one in different}) == len(different)
    counts = np.zeros(100)
    for step in range(4000):
        counts[tg.RandomK(0.1).encode(np.arange(100.0), OF._replace(step=step))[1].astype(int)] += 1
    # Binomial(4000, 1/10): mean 400, standard deviation 19.
    assert np.abs(counts - 400).max() < 5 * 19


def test_zeros_stay_zeros_and_a_short_last_block_has_its_own_scale() -> None:
    for codec, _ in CASES.values():
        assert not send(codec, np.zeros(9), OF).decoded.any()
    scales, steps = tg.Int8(block=4).encode(np.array([127.0, 1, 0, 0, -0.127, 0.0005]), OF)
    assert scales.tolist() == [1.0, 0.001]
    assert steps.tolist() == [127, 1, 0, 0, -127, 0]  # a half goes to the even number


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_smallest_and_the_largest_numbers_do_no_harm(dtype: Any) -> None:
    info = np.finfo(dtype)
    for size in (info.smallest_subnormal, info.tiny, info.max):
        values = np.array([size, -size / 2, 0.0, size], dtype=dtype)
        for codec, _ in CASES.values():
            sent = send(codec, values, OF)
            assert np.isfinite(sent.decoded).all()
            assert np.isfinite(sent.error).all()


@pytest.mark.parametrize("name", [name for name in CASES if name != "identity"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(name: str, wrong: float) -> None:
    codec, _ = CASES[name]
    with pytest.raises(ValueError, match=f"{type(codec).__name__} cannot encode .*{abs(wrong)}"):
        codec.encode(np.array([1.0, wrong]), OF)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: tg.TopK(0.0), "share must be greater than 0 and at most 1"),
        (lambda: tg.TopK(1.5), "share must be greater than 0 and at most 1"),
        (lambda: tg.RandomK(-0.1), "share must be greater than 0 and at most 1"),
        (lambda: tg.RandomK(math.nan), "share must be a finite number"),
        (lambda: tg.TopK("1%"), "share must be a finite number"),  # type: ignore[arg-type]
        (lambda: tg.RandomK(0.1, seed=-1), "seed must be a whole number"),
        (lambda: tg.Int8(block=0), "block must be a whole number of at least 1"),
        (
            lambda: tg.Budget(10.0, direction="push", codec=tg.Sign()),
            'bytes of whole slices, which Sign does not send: use direction="pull"',
        ),
    ],
)
def test_what_makes_no_sense_is_told_by_name(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_a_block_longer_than_the_slice_takes_no_memory() -> None:
    values = np.linspace(-1.0, 2.0, 6)
    large, fitting = tg.Int8(block=10**11), tg.Int8(block=6)
    encoded = large.encode(values, OF)
    for made, expected in zip(encoded, fitting.encode(values, OF), strict=True):
        assert np.array_equal(made, expected)
    assert np.array_equal(large.decode(encoded, 6), fitting.decode(encoded, 6))
    assert large.encoded_bytes(6, 8) == fitting.encoded_bytes(6, 8)
    assert [len(part) for part in large.encode(values[:0], OF)] == [0, 0]
