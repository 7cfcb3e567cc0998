"""Randomness by key: every draw is a function of (seed, purpose, ids, position) alone.

A *stream* is named by its key; the draw at a position does not depend on which other draws were
made, by whom or in what order. So adding a worker or a measurement changes nobody else's numbers,
and a resumed run needs no generator state. Everything is vectorised over keys and positions.

The bits are SplitMix64 (Steele, Lea and Flood 2014): output = mix(key + (position + 1)·γ).
"""

import hashlib

import numpy as np
import numpy.typing as npt

from tardigrad.core.arrays import Floats

Bits = npt.NDArray[np.uint64]

GAMMA = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def key(seed: int, purpose: str, *ids: int) -> int:
    """The 64-bit key of the stream (seed, purpose, ids)."""
    text = ":".join([str(int(seed)), purpose, *(str(int(i)) for i in ids)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def keys(seed: int, purpose: str, count: int) -> Bits:
    """The keys of `count` sibling streams, one per worker: positions of one parent stream."""
    return bits(key(seed, purpose), np.arange(count))


def bits(stream: int | Bits, position: npt.ArrayLike) -> Bits:
    """64 uniform bits at each position of the stream (both broadcast)."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is meant; numpy warns on scalars
        z = np.asarray(stream, dtype=np.uint64) + (
            np.asarray(position).astype(np.uint64) + np.uint64(1)
        ) * np.uint64(GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
        return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def uniform(stream: int | Bits, position: npt.ArrayLike) -> Floats:
    """Uniform in the open interval (0, 1): the top 52 bits, centred, so neither end is reached."""
    return ((bits(stream, position) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def integers(stream: int | Bits, position: npt.ArrayLike, below: int) -> npt.NDArray[np.int64]:
    """Integers in [0, below), below < 2³², by multiply-and-shift (bias under 2⁻³² · below)."""
    high = bits(stream, position) >> np.uint64(32)
    return ((high * np.uint64(below)) >> np.uint64(32)).astype(np.int64)


def normal(stream: int | Bits, position: npt.ArrayLike) -> Floats:
    """Standard normal by Box–Muller, from the two halves of a sub-stream of the position."""
    own = bits(stream, position)
    return _normal_of(uniform(own, 0), uniform(own, 1))


def exponential(stream: int | Bits, position: npt.ArrayLike) -> Floats:
    """Exponential with mean 1, by inversion."""
    return -np.log(uniform(stream, position))


def gamma(stream: int | Bits, position: npt.ArrayLike, shape: float) -> Floats:
    """Gamma(shape, scale 1) by Marsaglia and Tsang (2000); the tries are a keyed sub-stream.

    For shape < 1 it draws Gamma(shape + 1) and multiplies by U^(1/shape).
    """
    if not shape > 0:
        raise ValueError(f"the gamma shape must be positive, got {shape}")
    own = np.atleast_1d(bits(stream, position))
    boosted = shape + 1.0 if shape < 1.0 else shape
    d = boosted - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    out = np.empty(own.shape, dtype=np.float64)
    pending = np.ones(own.shape, dtype=bool)
    attempt = 0
    while True:
        tried = own[pending]
        x = _normal_of(uniform(tried, 3 * attempt), uniform(tried, 3 * attempt + 1))
        v = (1.0 + c * x) ** 3
        with np.errstate(invalid="ignore", divide="ignore"):
            log_v = np.log(v)
            good = (v > 0) & (
                np.log(uniform(tried, 3 * attempt + 2)) < 0.5 * x * x + d * (1.0 - v + log_v)
            )
        where = np.nonzero(pending)
        out[tuple(w[good] for w in where)] = d * v[good]
        pending[tuple(w[good] for w in where)] = False
        if not pending.any():
            break
        attempt += 1
    if shape < 1.0:
        # A position no try can reach, so the factor is independent of them.
        out *= uniform(own, 1 << 40) ** (1.0 / shape)
    return out.reshape(np.broadcast(np.asarray(stream), np.asarray(position)).shape)


def permutation(stream: int, count: int) -> npt.NDArray[np.int64]:
    """A keyed shuffle of range(count): the order of their bits (stable, so ties are harmless)."""
    return np.argsort(bits(stream, np.arange(count)), kind="stable")


def _normal_of(u: Floats, w: Floats) -> Floats:
    return np.asarray(np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * np.pi * w), dtype=np.float64)
