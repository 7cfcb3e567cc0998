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
    decoded = decode(codec, encoded, len(values), values.dtype)
    return Sent(encoded, decoded, values - decoded)


def decode(codec: Codec, encoded: Encoded, length: int, dtype: np.dtype[Any]) -> Values:
    """What a shard sees of `length` numbers of that type. Refused is what a codec has not made as
    it says: bytes would be counted wrong, or the shard would get other numbers than it holds."""
    name = type(codec).__name__
    require(
        isinstance(encoded, tuple) and all(isinstance(one, np.ndarray) for one in encoded),
        f"{name}.encode must return a tuple of NumPy arrays, got {type(encoded).__name__}",
    )
    came, told = sum(one.nbytes for one in encoded), encoded_bytes(codec, length, dtype.itemsize)
    require(
        came == told,
        f"{name}.encode made {came} bytes of {length} numbers of {dtype}, and encoded_bytes says "
        f"{told}: let it say what travels",
    )
    decoded = codec.decode(encoded, length)
    good = isinstance(decoded, np.ndarray) and decoded.shape == (length,) and decoded.dtype == dtype
    found = f"{decoded.shape} of {decoded.dtype}" if isinstance(decoded, np.ndarray) else decoded
    require(
        good,
        f"{name}.decode must return a flat array of {length} numbers of {dtype}, got {found}",
    )
    return decoded


def encoded_bytes(codec: Codec, length: int, number_bytes: int) -> int:
    """What a codec says that a slice takes on the way."""
    found: Any = codec.encoded_bytes(length, number_bytes)
    whole = int(found) if isinstance(found, int | np.integer) else -1
    require(
        whole >= 0,
        f"{type(codec).__name__}.encoded_bytes must be a whole number of at least 0, got {found!r}",
    )
    return whole


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
