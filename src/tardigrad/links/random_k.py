"""Numbers of each slice, chosen at random."""

from dataclasses import dataclass

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.core.checks import count
from tardigrad.core.keys import bits, key
from tardigrad.links.codec import (
    Codec,
    Encoded,
    SliceOf,
    Values,
    check_encodable,
    check_share,
    kept,
)


@dataclass(frozen=True)
class RandomK(Codec):
    """C(p)_i = p_i for k of the slice's numbers, drawn without replacement, else 0.

    k = share · length of the slice, to the nearest whole number and at least one. Which ones is
    keyed by (seed, worker, step, shard). What travels: that key, of eight bytes, from which the
    shard draws the positions again, and k numbers.

    Args:
        share: of the numbers, in (0, 1].
        error_feedback: whether workers keep what was not sent.
        seed: of the draws; in a file, the experiment's unless it says another.

    Choices:
        Numbers are sent as they are, not times 1 / share: that would be right in the mean, but an
        error that is fed back would grow by it. So without error feedback the mean step is `share`
        times as long.

    Stich et al. 2018, "Sparsified SGD with Memory", section 2.1.
    """

    share: float
    error_feedback: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_share(self.share)
        count("seed", self.seed, least=0)

    def encode(self, values: Values, of: SliceOf) -> Encoded:
        check_encodable(self, values)
        lot = np.array([key(self.seed, "random_k", *of)], dtype=np.uint64)
        return lot, values[self._chosen(int(lot[0]), len(values))]

    def decode(self, encoded: Encoded, length: int) -> Values:
        lot, values = encoded
        out = np.zeros(length, dtype=values.dtype)
        out[self._chosen(int(lot[0]), length)] = values
        return out

    def encoded_bytes(self, length: int, number_bytes: int) -> int:
        return 8 + kept(self.share, length) * number_bytes

    def _chosen(self, stream: int, length: int) -> Ints:
        """Positions, rising: those with the k smallest draws."""
        k = kept(self.share, length)
        drawn = bits(stream, np.arange(length))
        most = np.partition(drawn, k - 1)[k - 1]
        return np.nonzero(drawn <= most)[0][:k]
