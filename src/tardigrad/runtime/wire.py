"""Frames between processes of one machine: JSON for what is said, plain bytes for arrays.

A frame is two lengths, a JSON list [kind, what, arrays], and the arrays' bytes one after the other.
Floats survive exactly, as JSON is written and read here, NaN and infinities too. Nothing that comes
in can run code, and a frame that is none is refused before anything is made of it.
"""

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tardigrad.runtime.arena import Address, Payload
from tardigrad.runtime.messages import Packed, Released, Ticket, from_plain, to_plain

LENGTHS = struct.Struct("<II")
MOST_TEXT = 1 << 20
NUMBERS = frozenset("fiub")
"""The kinds of numpy types that an array may have."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


class BadFrame(ValueError):
    """Bytes that no correct peer sends."""


class Frame(NamedTuple):
    kind: str
    what: list[Any]
    arrays: list[Any]

    def payload(self, plain: Any) -> Payload:
        """What `plain` stands for: nothing, a slot's address, or one of the arrays."""
        if plain is None:
            return None
        if isinstance(plain, int):
            return self.arrays[plain]
        pid, file, length, data_at, nonce, dtype = plain
        return Address(pid, file, length, data_at, bytes.fromhex(nonce), dtype)

    def packed(self) -> list[Packed]:
        """What a shard sends."""
        out: list[Packed] = []
        for plain, payload in self.what:
            item = from_plain(plain)
            if not isinstance(item, Released | Ticket):
                raise BadFrame(f"a shard sends no {plain[0]!r}")
            out.append((item, self.payload(payload)))
        return out


class Arrays:
    """The arrays of a frame that is being written."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def add(self, array: Any) -> int:
        self.all.append(np.asarray(array, order="C"))
        return len(self.all) - 1

    def payload(self, payload: Payload) -> Any:
        if payload is None:
            return None
        if isinstance(payload, Address):
            return [*payload[:4], payload.nonce.hex(), payload.dtype]
        return self.add(payload)

    def packed(self, packed: Sequence[Packed]) -> list[Any]:
        return [(to_plain(item), self.payload(payload)) for item, payload in packed]


def write_frame(kind: str, what: Sequence[Any], arrays: Arrays | None = None) -> bytes:
    all_ = arrays.all if arrays is not None else []
    about = [(array.dtype.str, array.shape) for array in all_]
    text = _encode((kind, what, about)).encode()
    body = b"".join(array.tobytes() for array in all_)
    return LENGTHS.pack(len(text), len(body)) + text + body


def split_frames(data: bytearray) -> Iterator[Frame]:
    """The whole frames at the beginning of `data`, which are taken from it."""
    while len(data) >= LENGTHS.size:
        text_bytes, body_bytes = LENGTHS.unpack_from(data)
        if text_bytes > MOST_TEXT:
            raise BadFrame(f"a frame with {text_bytes} bytes of text, at most {MOST_TEXT} may come")
        body_at = LENGTHS.size + text_bytes
        end = body_at + body_bytes
        if len(data) < end:
            return
        text, body = bytes(data[LENGTHS.size : body_at]), bytes(data[body_at:end])
        del data[:end]
        yield _frame(text, body)


def _frame(text: bytes, body: bytes) -> Frame:
    try:
        kind, what, about = json.loads(text)
        if not (isinstance(kind, str) and isinstance(what, list)):
            raise ValueError("not a kind and a list")
        return Frame(kind, what, _arrays(body, about))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadFrame(f"a frame that cannot be read ({error})") from error


def _arrays(body: bytes, about: Sequence[Any]) -> list[Any]:
    out, at = [], 0
    for name, shape in about:
        dtype = np.dtype(name)
        if dtype.kind not in NUMBERS:
            raise ValueError(f"an array of {name}")
        count = math.prod(shape)
        out.append(np.frombuffer(body, dtype, count, at).reshape(shape))
        at += count * dtype.itemsize
    if at != len(body):
        raise ValueError(f"{len(body)} bytes for arrays of {at}")
    return out
