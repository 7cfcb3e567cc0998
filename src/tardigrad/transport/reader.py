"""What comes through a socket, made into frames again; arrays are received into their places."""

import socket
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tardigrad.transport.frames import (
    PREFIX,
    ArraySpec,
    FrameError,
    Prefix,
    ReadFrame,
    TransportLimits,
    read_prefix,
    read_text,
)
from tardigrad.transport.pool import PlaceArrays

BUFFER_BYTES = 1 << 14
"""Small frames come many at a time. Of a large one, at most this much is copied."""
PIECE_BYTES, WORTH_PIECES = 48 << 10, 1 << 20
"""What is left of a large array is taken from the socket in pieces: who waits for all of it in one
call holds the socket meanwhile, so that the memory of what is taken is given back, and
acknowledged, late. Less than a megabyte comes faster in one call."""
SLOW_S, FAST_S = 0.001, 0.002
"""A piece that takes so long waits for the peer, or for Python's lock, which a thread that computes
may hold: then the rest is taken in one call. After so long in all, whoever reads looks around."""


class FrameReader:
    """The receiving end of one connection, for one thread."""

    def __init__(self, limits: TransportLimits, place: PlaceArrays) -> None:
        self.limits = limits
        self._place = place
        self._buffer = bytearray(BUFFER_BYTES)
        self._begin = self._end = 0
        self._prefix: Prefix | None = None
        self._frame: ReadFrame | None = None
        self._rest: list[memoryview] = []

    @property
    def inside(self) -> bool:
        """Whether a frame has begun and is not whole yet."""
        return self._end > self._begin or self._prefix is not None or self._frame is not None

    @property
    def rest_bytes(self) -> int:
        """What is still to come of the frame's arrays, straight to their places."""
        return sum(len(part) for part in self._rest)

    def fill(self, peer: socket.socket, flags: int = 0, body_flags: int = 0) -> int:
        """Receive once; returns how many bytes came, 0 where the peer has ended.

        body_flags: for what goes straight to its place; where they wait for all that is asked for,
        it may come in several calls.
        """
        if self._rest:
            if body_flags & socket.MSG_WAITALL:
                return self._fill_by_pieces(peer, body_flags)
            came = peer.recv_into(self._rest[0], 0, body_flags)
            self._advance(came)
        else:
            with memoryview(self._buffer) as view, view[self._end :] as free:
                came = peer.recv_into(free, 0, flags)
            self._end += came
        return came

    def _fill_by_pieces(self, peer: socket.socket, flags: int) -> int:
        """What is left of one array, or as much of it as comes fast."""
        rest, came = self._rest[0], 0
        piece_bytes = PIECE_BYTES if len(rest) > WORTH_PIECES else len(rest)
        began = now = monotonic()
        try:
            while came < len(rest):
                piece = rest[came : came + piece_bytes]
                many = peer.recv_into(piece, 0, flags)
                came += many
                before, now = now, monotonic()
                if many < len(piece):
                    break
                if now - before > SLOW_S:
                    piece_bytes = len(rest)
                elif now - began > FAST_S:
                    break
        except BlockingIOError:  # no more comes for now
            if not came:
                raise
        finally:
            if came:
                self._advance(came)
        return came

    def frames(self) -> Iterator[ReadFrame]:
        """Those that are whole, in order."""
        while self._frame is not None or self._begin_frame():
            if self._rest:
                return
            assert self._frame is not None
            frame, self._frame = self._frame, None
            yield frame
            del frame
        self._make_room()

    def _begin_frame(self) -> bool:
        """False where more has to come before the frame's arrays are known."""
        if self._prefix is None:
            if self._end - self._begin < PREFIX.size:
                return False
            self._prefix = read_prefix(self._buffer, self._begin, self.limits)
            self._begin += PREFIX.size
        text_bytes, body_bytes = self._prefix
        body_at = self._begin + text_bytes
        if self._end < body_at:
            return False
        header, specs = read_text(self._buffer[self._begin : body_at], body_bytes)
        if specs and not self.limits.array_bytes:
            raise FrameError("a frame with arrays: none may come")
        self._begin, self._prefix = body_at, None
        if not specs:
            self._frame = ReadFrame(header, [])
            return True
        arrays = list(self._place(header, specs))
        _check(arrays, specs)
        self._frame = ReadFrame(header, arrays)
        self._rest = [a.reshape(-1).view(np.uint8).data for a in arrays if a.size]
        self._copy_what_is_here()
        return True

    def _copy_what_is_here(self) -> None:
        """The arrays' first bytes came together with the text."""
        while self._rest and self._begin < self._end:
            many = min(len(self._rest[0]), self._end - self._begin)
            self._rest[0][:many] = self._buffer[self._begin : self._begin + many]
            self._begin += many
            self._advance(many)

    def _advance(self, many: int) -> None:
        rest = self._rest[0][many:]
        if rest:
            self._rest[0] = rest
        else:
            del self._rest[0]

    def _make_room(self) -> None:
        """What is left of the buffer to its beginning, with room for the whole text."""
        if self._begin == self._end and not self.inside and len(self._buffer) == BUFFER_BYTES:
            self._begin = self._end = 0  # by far most often: without a copy of nothing
            return
        left = self._buffer[self._begin : self._end]
        needed = self._prefix.text_bytes if self._prefix is not None else 0
        if max(needed, BUFFER_BYTES) != len(self._buffer):
            self._buffer = bytearray(max(needed, BUFFER_BYTES))
        self._buffer[: len(left)] = left
        self._begin, self._end = 0, len(left)


def _check(arrays: Sequence[NDArray[Any]], specs: Sequence[ArraySpec]) -> None:
    given = [(array.dtype, array.shape) for array in arrays]
    asked = [(spec.dtype, spec.shape) for spec in specs]
    if given != asked or not all(a.flags.c_contiguous and a.flags.writeable for a in arrays):
        # Not by `require`: to write types down takes longer than all else about a frame.
        raise ValueError(
            f"arrays {asked} cannot be received into {given}, which must be writable, in C order"
        )
