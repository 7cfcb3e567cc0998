"""One byte a number."""

from dataclasses import dataclass

import numpy as np

from tardigrad.core.checks import count
from tardigrad.links.codec import Codec, Encoded, SliceOf, Values, check_encodable

LARGEST = 127


@dataclass(frozen=True)
class Int8(Codec):
    """C(p)_i = s · round(p_i / s), s = max|p| / 127 over each block of the slice.

    What travels: one s for each block, and one byte for each number, from −127 to 127. Halves are
    rounded to even numbers. A block of zeros has s = 0 and is sent as zeros; the last block of a
    slice may be shorter.

    Args:
        block: the numbers that share a scale; fewer make it finer and cost a scale each.
        error_feedback: whether workers keep what was not sent.

    Choices:
        Rounding is to the nearest, not at random: with error feedback that is enough, and it draws
        nothing. Where s is too small or too large for its type, numbers are sent as at most ±127 s,
        and the rest is error.
    """

    block: int = 1024
    error_feedback: bool = True

    def __post_init__(self) -> None:
        count("block", self.block)

    def encode(self, values: Values, of: SliceOf) -> Encoded:
        check_encodable(self, values)
        block = max(1, min(self.block, len(values)))
        blocks = np.zeros((self._blocks(len(values)), block), dtype=values.dtype)
        blocks.ravel()[: len(values)] = values
        scales = np.abs(blocks).max(axis=1) / values.dtype.type(LARGEST)
        most = np.finfo(values.dtype).max / values.dtype.type(LARGEST)
        scales = np.minimum(scales, np.nextafter(most, scales.dtype.type(0)))  # 127 s is finite
        steps = np.zeros_like(blocks)
        np.divide(blocks, scales[:, None], out=steps, where=scales[:, None] > 0)
        steps = np.clip(np.rint(steps), -LARGEST, LARGEST)
        return scales, steps.ravel()[: len(values)].astype(np.int8)

    def decode(self, encoded: Encoded, length: int) -> Values:
        scales, steps = encoded
        each = np.repeat(scales, min(self.block, length))[:length]
        decoded: Values = each * steps.astype(scales.dtype)
        return decoded

    def encoded_bytes(self, length: int, number_bytes: int) -> int:
        return self._blocks(length) * number_bytes + length

    def _blocks(self, length: int) -> int:
        return -(-length // self.block)
