"""Large arrays, taken from the socket in pieces."""

import socket
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from tardigrad.transport.frames import DEFAULT_LIMITS, ReadFrame
from tardigrad.transport.pool import ArrayPool
from tardigrad.transport.reader import FAST_S, PIECE_BYTES, SLOW_S, WORTH_PIECES, FrameReader
from tests.transport.transport_peers import frame_bytes

WAITS = int(socket.MSG_WAITALL)
MANY = 2 * WORTH_PIECES // PIECE_BYTES
ARRAY = np.arange(MANY * PIECE_BYTES // 8 + 3, dtype=np.int64)
QUICK = SLOW_S / 100


class Scripted:
    """A socket in which each call takes its time and brings at most so many bytes; None: none come
    before its patience ends."""

    def __init__(self, data: bytes, calls: Sequence[tuple[float, int | None]]) -> None:
        self.data, self.calls = data, list(calls)
        self.now_s, self.at = 100.0, 0
        self.asked: list[int] = []

    def recv_into(self, buffer: memoryview, nbytes: int, flags: int) -> int:
        seconds, most = self.calls.pop(0) if self.calls else (QUICK, len(self.data))
        self.now_s += seconds
        self.asked.append(len(buffer))
        if most is None:
            raise BlockingIOError
        many = min(len(buffer), most, len(self.data) - self.at)
        buffer[:many] = self.data[self.at : self.at + many]
        self.at += many
        return many


def begun(calls: Sequence[tuple[float, int | None]]) -> tuple[FrameReader, Scripted]:
    """A reader that has read a frame up to its array, and what brings the rest."""
    made = FrameReader(DEFAULT_LIMITS, ArrayPool())
    data = frame_bytes([1], [ARRAY])
    peer = Scripted(data, [(0.0, len(data) - ARRAY.nbytes)])
    made.fill(cast(socket.socket, peer))
    assert list(made.frames()) == []
    peer.asked.clear()
    peer.calls = list(calls)
    return made, peer


def filled(made: FrameReader, peer: Scripted) -> list[ReadFrame]:
    """One call of `fill`, and what is whole by then."""
    made.fill(cast(socket.socket, peer), 0, WAITS)
    return list(made.frames())


def whole(frames: list[ReadFrame]) -> bool:
    return len(frames) == 1 and np.array_equal(frames[0].arrays[0], ARRAY)


@pytest.fixture(autouse=True)
def _its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader looks at the clock of the peer that was made last."""
    clocks: list[Scripted] = []
    made = Scripted.__init__

    def init(self: Scripted, *args: Any) -> None:
        made(self, *args)
        clocks.append(self)

    monkeypatch.setattr(Scripted, "__init__", init)
    monkeypatch.setattr("tardigrad.transport.reader.monotonic", lambda: clocks[-1].now_s)


def test_what_comes_fast_is_taken_in_pieces_in_one_call() -> None:
    made, peer = begun([])
    assert whole(filled(made, peer))
    assert peer.asked == [PIECE_BYTES] * MANY + [24]


def test_a_megabyte_is_taken_in_one_call() -> None:
    small = FrameReader(DEFAULT_LIMITS, ArrayPool())
    data = frame_bytes([1], [ARRAY[: WORTH_PIECES // 8]])
    other = Scripted(data, [(0.0, len(data) - WORTH_PIECES)])
    small.fill(cast(socket.socket, other))
    assert list(small.frames()) == []
    assert len(filled(small, other)) == 1
    assert other.asked[1:] == [WORTH_PIECES]


@pytest.mark.parametrize("slow_s", [1.1 * SLOW_S, 5 * FAST_S])
def test_behind_a_slow_piece_the_rest_is_waited_for_at_once(slow_s: float) -> None:
    """A thread that computes may hold Python's lock, which each piece waits for."""
    made, peer = begun([(QUICK, 10**9), (slow_s, 10**9)])
    assert whole(filled(made, peer))
    assert peer.asked == [PIECE_BYTES, PIECE_BYTES, ARRAY.nbytes - 2 * PIECE_BYTES]


def test_who_reads_for_long_looks_around() -> None:
    """Others may wait, and whoever serves them decides who is next."""
    made, peer = begun([(0.9 * SLOW_S, 10**9)] * 3)
    assert filled(made, peer) == []
    assert len(peer.asked) == 3  # the third ends after FAST_S
    assert peer.now_s - 100 > FAST_S
    assert whole(filled(made, peer))


@pytest.mark.parametrize("pause_s", [QUICK, 5 * FAST_S])
@pytest.mark.parametrize("short", [0, 1, PIECE_BYTES - 1])
def test_what_came_before_a_pause_is_kept(short: int, pause_s: float) -> None:
    """And nobody waits for the rest, however long the pause was: it may be a peer that drips."""
    calls: list[tuple[float, int | None]] = [(QUICK, 10**9), (pause_s, short or None)]
    made, peer = begun(calls)
    assert filled(made, peer) == []
    assert made.rest_bytes == ARRAY.nbytes - PIECE_BYTES - short
    assert whole(filled(made, peer))


def test_a_pause_before_anything_came_is_told() -> None:
    made, peer = begun([(QUICK, None)])
    with pytest.raises(BlockingIOError):
        filled(made, peer)
    assert whole(filled(made, peer))


def test_a_peer_that_has_gone_is_told_after_what_it_sent() -> None:
    made, peer = begun([(QUICK, 10**9), (QUICK, 0)])
    assert made.fill(cast(socket.socket, peer), 0, WAITS) == PIECE_BYTES
    peer.calls = [(QUICK, 0)]
    assert made.fill(cast(socket.socket, peer), 0, WAITS) == 0
    assert made.inside
