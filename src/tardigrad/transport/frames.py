"""Frames: JSON for what is said, plain bytes for arrays.

A frame is a mark and two lengths, a JSON text [header, arrays] and the arrays' bytes one after the
other. Floats survive exactly, NaN and infinities too. Nothing that comes in can run code. Sizes are
compared with the limits, and with each other, before any memory is taken for them.
"""

import json
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tardigrad.core.checks import require

PREFIX = struct.Struct("<4sIQ")
"""The mark, the bytes of text, the bytes of all arrays."""
MARK = b"tgd2"
MOST_ARRAYS = 256
MOST_DIMENSIONS = 16

_NUMBERS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
DTYPES = {dtype.str: dtype for dtype in map(np.dtype, _NUMBERS)}
"""What an array may hold, by the name that travels."""

_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


class FrameError(ValueError):
    """Bytes that no correct peer sends."""


class TransportLimits(NamedTuple):
    """What a peer may ask of this side; whoever exceeds one is cut off."""

    text_bytes: int = 1 << 20
    """Most bytes of a frame's JSON."""
    array_bytes: int = 1 << 30
    """Most bytes of a frame's arrays together."""
    backlog_bytes: int = 1 << 30
    """How far a peer may be behind in reading. One frame may always wait, however large."""
    backlog_frames: int = 1 << 16
    pending: int = 128
    """How many may be at the listener that have not proven yet that they know the secret."""
    handshake_s: float = 5.0
    """How long they may take."""
    silent_s: float = 30.0
    """How long a TCP peer may leave what is sent to it, or a probe, without any reply."""


DEFAULT_LIMITS = TransportLimits()
STRANGER = TransportLimits(text_bytes=4096, array_bytes=0)
"""What is read of a peer before it has proven that it knows the secret."""


class ArraySpec(NamedTuple):
    """An array that is about to come."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size_bytes: int


class ReadFrame(NamedTuple):
    header: list[Any]
    arrays: list[NDArray[Any]]


class Prefix(NamedTuple):
    text_bytes: int
    body_bytes: int


def frame_parts(header: list[Any], arrays: Sequence[NDArray[Any]]) -> list[memoryview]:
    """The bytes of a frame, in parts that `sendmsg` takes; an array in C order is not copied."""
    require(len(arrays) <= MOST_ARRAYS, f"{len(arrays)} arrays: a frame holds {MOST_ARRAYS}")
    plain = [np.asarray(array, order="C") for array in arrays]
    for array in plain:
        if array.dtype.str not in DTYPES or array.ndim > MOST_DIMENSIONS:
            # Not by `require`: to name them all takes longer than all else about a small frame.
            raise ValueError(
                f"an array of {array.dtype} with {array.ndim} dimensions cannot be sent: send one "
                f"of {', '.join(str(dtype) for dtype in DTYPES.values())}"
            )
    text = _encode((header, [(array.dtype.str, array.shape) for array in plain])).encode()
    prefix = PREFIX.pack(MARK, len(text), sum(array.nbytes for array in plain))
    bodies = [array.reshape(-1).view(np.uint8).data for array in plain if array.size]
    return [memoryview(prefix + text), *bodies]


def read_prefix(data: bytearray, at: int, limits: TransportLimits) -> Prefix:
    mark, text_bytes, body_bytes = PREFIX.unpack_from(data, at)
    if mark != MARK:
        raise FrameError(f"a frame begins with {MARK!r}, not with {mark!r}")
    if text_bytes > limits.text_bytes:
        raise FrameError(
            f"a frame with {text_bytes} bytes of text: at most {limits.text_bytes} may come"
        )
    if body_bytes > limits.array_bytes:
        raise FrameError(
            f"a frame with {body_bytes} bytes of arrays: at most {limits.array_bytes} may come"
        )
    return Prefix(text_bytes, body_bytes)


def read_text(text: bytes | bytearray, body_bytes: int) -> tuple[list[Any], list[ArraySpec]]:
    """The header, and which arrays follow: together exactly `body_bytes`."""
    try:
        header, about = _decode(text.decode())
        if not (isinstance(header, list) and isinstance(about, list)):
            raise ValueError("neither the header nor the arrays may be anything but lists")
        if len(about) > MOST_ARRAYS:
            raise ValueError(f"{len(about)} arrays")
        specs = [_spec(dtype, shape, body_bytes) for dtype, shape in about]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FrameError(f"a frame that cannot be read ({error})") from error
    if sum(spec.size_bytes for spec in specs) != body_bytes:
        raise FrameError(f"a frame whose arrays do not have {body_bytes} bytes together")
    return header, specs


def _spec(name: str, shape: list[int], body_bytes: int) -> ArraySpec:
    dtype = DTYPES[name]
    if len(shape) > MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape}")
    # An empty array's other dimensions count too: numpy refuses those beyond its own integers.
    if math.prod(max(n, 1) for n in shape) >> 62:
        raise ValueError(f"an array of shape {shape}")
    return ArraySpec(dtype, tuple(shape), math.prod(shape) * dtype.itemsize)
