"""In which form a push crosses the wire: the interface between codecs, executors and workers.

A worker's gradient is encoded shard by shard: each shard's slice is a push of its own. The shard
decodes what came, and the rule sees that in the gradient's place.

**Error feedback.** A lossy codec C forgets what it does not send, unless the worker keeps it: with
e the worker's *error*, 0 at its start,

    p = e + g;  send C(p);  e ← p − C(p).

The error changes when p is pushed, whatever becomes of the push: what a shard then drops is gone.
So e follows from the schedule alone. Only a gate that holds the slice back keeps all of it, e ← p,
which then comes with the worker's next push to that shard, added and not averaged. A row that is
interrupted, or not finite, is never encoded and leaves e as it was.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tardigrad.core.checks import number, require

Values = NDArray[np.floating[Any]]
"""A slice: one number after the other, in float32 or float64."""
Encoded = tuple[NDArray[Any], ...]
"""What travels: flat arrays, whose lengths and types follow from those of the slice."""


class SliceOf(NamedTuple):
    """Whose gradient, and which shard's slice of it; a codec that draws is keyed by these."""

    worker: int
    step: int
    shard: int


class Codec(ABC):
    """In which form gradients are pushed: a frozen dataclass.

    Encoding is a pure function, so that recovery and replay can repeat it. It need not be linear,
    but with error feedback it should contract: ‖p − C(p)‖ < ‖p‖ for p ≠ 0, or the error grows
    without bound.
    """

    error_feedback: bool = False
    """Whether workers keep what was not sent, and add it to their next gradient."""

    @abstractmethod
    def encode(self, values: Values, of: SliceOf) -> Encoded:
        """One shard's slice of a gradient, all of it finite, in the form in which it travels."""

    @abstractmethod
    def decode(self, encoded: Encoded, length: int) -> Values:
        """The slice of `length` numbers, as the shard sees it."""

    @abstractmethod
    def encoded_bytes(self, length: int, number_bytes: int) -> int:
        """What a slice of `length` numbers takes on the way; known before there is a gradient."""


class Sent(NamedTuple):
    """One slice of one push."""

    encoded: Encoded
    decoded: Values
    """C(p), as the shard will see it."""
    error: Values
    """p − C(p)."""


def send(codec: Codec, values: Values, of: SliceOf) -> Sent:
    """Encode p = e + g."""
    encoded = codec.encode(values, of)
    decoded = codec.decode(encoded, len(values))
    return Sent(encoded, decoded, values - decoded)


def check_encodable(codec: Codec, values: Values) -> None:
    """Refuse what no codec can encode: a NaN would be sent as a number, or hide the others."""
    finite = np.isfinite(values)
    require(
        bool(finite.all()),
        f"{type(codec).__name__} cannot encode {values[~finite][:1]}: push finite gradients only, "
        "such as with a lower rate or clip_norm",
    )


def check_share(share: object) -> None:
    require(
        0 < number("share", share) <= 1,
        f"share must be greater than 0 and at most 1, such as 0.01, got {share!r}",
    )


def kept(share: float, length: int) -> int:
    """How many of so many numbers a share is: the nearest whole number, at least one."""
    return min(length, max(1, round(share * length)))


def position_type(length: int) -> np.dtype[Any]:
    """Of positions in a slice: four bytes wherever they do."""
    return np.dtype(np.uint32 if length <= 2**32 else np.uint64)
