"""One bit a number."""

from dataclasses import dataclass

import numpy as np

from tardigrad.links.codec import Codec, Encoded, SliceOf, Values, check_encodable


@dataclass(frozen=True)
class Sign(Codec):
    """C(p)_i = s · sign(p_i), s = mean of |p_i| over the slice.

    What travels: s, and one bit for each number, eight to a byte, the lowest bit first; bits beyond
    the end of the slice are 0.

    Args:
        error_feedback: whether workers keep what was not sent. Without it this is signSGD with a
            scale, which need not converge.

    Choices:
        A zero has one bit as well and is sent as +s. With the scale the codec contracts; the bare
        sign does not.

    Karimireddy et al. 2019, "Error Feedback Fixes SignSGD and other Gradient Compression Schemes",
    algorithm 1 (which feeds back η g, not g; **choice**, because here the rate is the server's).
    """

    error_feedback: bool = True

    def encode(self, values: Values, of: SliceOf) -> Encoded:
        check_encodable(self, values)
        each = np.abs(values, dtype=np.float64) / len(values)  # whose sum is never infinite
        scale = each.sum(keepdims=True).astype(values.dtype)
        return scale, np.packbits(values < 0, bitorder="little")

    def decode(self, encoded: Encoded, length: int) -> Values:
        scale, packed = encoded
        negative = np.unpackbits(packed, count=length, bitorder="little").view(bool)
        return np.where(negative, -scale, scale)

    def encoded_bytes(self, length: int, number_bytes: int) -> int:
        return number_bytes + (length + 7) // 8
