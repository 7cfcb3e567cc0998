"""The largest numbers of each slice."""

from dataclasses import dataclass

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.links.codec import (
    Codec,
    Encoded,
    SliceOf,
    Values,
    check_encodable,
    check_share,
    kept,
    position_type,
)


@dataclass(frozen=True)
class TopK(Codec):
    """C(p)_i = p_i for the k numbers of largest |p_i|, else 0; k = share · length of the slice.

    k is rounded to the nearest whole number, and is at least one. What travels: k positions of four
    bytes, rising, and k numbers. Each shard chooses among its own slice, so the choice depends on
    how the parameters are divided.

    Args:
        share: of the numbers, in (0, 1].
        error_feedback: whether workers keep what was not sent.

    Choices:
        Of equal |p_i| the one at the lower position goes first, also among zeros, so that the same
        p gives the same bits on every machine. A position costs as much as a number in float32:
        above share = 1/2 the plain gradient is smaller.

    Stich et al. 2018, "Sparsified SGD with Memory", algorithm 1 (which feeds back η g, not g: it is
    the same where η is constant; **choice**, because here the rate is the server's).
    """

    share: float
    error_feedback: bool = True

    def __post_init__(self) -> None:
        check_share(self.share)

    def encode(self, values: Values, of: SliceOf) -> Encoded:
        check_encodable(self, values)
        chosen = _largest(np.abs(values), kept(self.share, len(values)))
        return chosen.astype(position_type(len(values))), values[chosen]

    def decode(self, encoded: Encoded, length: int) -> Values:
        positions, values = encoded
        out = np.zeros(length, dtype=values.dtype)
        out[positions] = values
        return out

    def encoded_bytes(self, length: int, number_bytes: int) -> int:
        return kept(self.share, length) * (position_type(length).itemsize + number_bytes)


def _largest(sizes: Values, k: int) -> Ints:
    """The positions of the k largest, rising; of equal ones the first."""
    if k == len(sizes):
        return np.arange(k)
    least = np.partition(sizes, len(sizes) - k)[len(sizes) - k]
    above, equal = np.nonzero(sizes > least)[0], np.nonzero(sizes == least)[0]
    return np.sort(np.concatenate([above, equal[: k - len(above)]]))
