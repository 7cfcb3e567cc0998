"""Frames: what they carry, how they are put together again, and which are refused."""

import json
import math
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tardigrad.transport.frames import (
    DEFAULT_LIMITS,
    DTYPES,
    MARK,
    MOST_ARRAYS,
    PREFIX,
    STRANGER,
    FrameError,
    ReadFrame,
    TransportLimits,
)
from tardigrad.transport.pool import ALIGNED, ArrayPool, PlaceArrays
from tardigrad.transport.reader import BUFFER_BYTES, FrameReader
from tests.transport.transport_peers import frame_bytes

FLOATS = [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 1 / 3]


class Pipe:
    """Bytes in at one end, frames out at the other."""

    def __init__(self, limits: TransportLimits, place: PlaceArrays) -> None:
        self.inlet, self.outlet = socket.socketpair()
        self.reader = FrameReader(limits, place)

    def read(self, data: bytes, at_once: int = 1 << 15) -> list[ReadFrame]:
        """All of `data`, written a piece at a time, as a slow network would."""
        out: list[ReadFrame] = []
        for at in range(0, len(data), at_once):
            piece = data[at : at + at_once]
            self.inlet.sendall(piece)
            came = 0
            while came < len(piece):
                came += self.reader.fill(self.outlet)
                out += self.reader.frames()
        return out

    def close(self) -> None:
        self.inlet.close()
        self.outlet.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe(DEFAULT_LIMITS, ArrayPool())
    yield made
    made.close()


def test_every_float_survives_exactly(pipe: Pipe) -> None:
    ((header, _),) = pipe.read(frame_bytes(FLOATS))
    assert struct.pack("8d", *header) == struct.pack("8d", *FLOATS)


GIVEN = [
    *(np.arange(5).astype(dtype) for dtype in DTYPES.values()),
    np.array([[1.5, math.nan], [-0.0, math.inf]], np.float32),
    np.array([b"\x01\x00\xc0\x7f\x00\x00\xc0\x7f"]).view(np.float32),  # two NaNs, of other bits
    np.array(3, np.int64),
    np.zeros(0, bool),
    np.zeros((0, 3), np.float32),
    np.arange(12.0).reshape(3, 4).T,
    np.arange(BUFFER_BYTES, dtype=np.float64),
    np.arange(100_003, dtype=np.float32),
]


@pytest.mark.parametrize("at_once", [1 << 15, 4099])
def test_every_kind_of_array_survives(pipe: Pipe, at_once: int) -> None:
    ((header, arrays),) = pipe.read(frame_bytes(["all"], GIVEN), at_once)
    assert header == ["all"]
    for array, expected in zip(arrays, GIVEN, strict=True):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes()
        assert not array.size or array.ctypes.data % ALIGNED == 0
        assert array.flags.writeable
    assert not pipe.reader.inside


def test_frames_come_whole_however_they_are_cut(pipe: Pipe) -> None:
    sent = [frame_bytes([n, "x" * n], [np.full(n, n, np.int8)] * (n % 3)) for n in range(30)]
    came = pipe.read(b"".join(sent), 1)
    assert [header[0] for header, _ in came] == list(range(30))
    assert [[a.tolist() for a in arrays] for _, arrays in came] == [
        [[n] * n] * (n % 3) for n in range(30)
    ]
    assert not pipe.reader.inside


def test_texts_longer_than_the_buffer_come_between_short_ones(pipe: Pipe) -> None:
    sizes = [3, 5 * BUFFER_BYTES, 1, BUFFER_BYTES - PREFIX.size, BUFFER_BYTES, 7]
    came = pipe.read(b"".join(frame_bytes(["x" * size]) for size in sizes))
    assert [len(header[0]) for header, _ in came] == sizes


def test_arrays_are_received_into_the_memory_that_is_handed_out() -> None:
    memory = np.zeros(1_000_000, np.float32)
    asked: list[Any] = []

    def place(header: list[Any], specs: Any) -> list[Any]:
        asked.append((header, specs))
        return [memory[10:500_010].reshape(2, -1), memory[600_000:600_001].reshape(())]

    pipe = Pipe(DEFAULT_LIMITS, place)
    sent = [np.arange(500_000, dtype=np.float32).reshape(2, -1), np.array(7, np.float32)]
    data = frame_bytes([1], sent)
    assert pipe.read(data[:-5]) == []  # nothing is handed on before it is whole
    assert pipe.reader.inside
    ((_, arrays),) = pipe.read(data[-5:])
    assert all(np.shares_memory(array, memory) for array in arrays)
    assert np.array_equal(memory[10:500_010], np.arange(500_000))
    assert memory[600_000] == 7
    assert memory.sum() == np.arange(500_000, dtype=np.float32).sum() + 7  # and nothing else
    (((header, specs)),) = asked
    assert header == [1]
    assert [(s.dtype, s.shape, s.size_bytes) for s in specs] == [
        (np.dtype("f4"), (2, 250_000), 2_000_000),
        (np.dtype("f4"), (), 4),
    ]
    pipe.close()


@pytest.mark.parametrize(
    "wrong",
    [
        [np.zeros(3, np.float32)],
        [np.zeros(4, np.float64)],
        [np.zeros(8, np.float32)[::2]],
        [np.zeros(4, np.float32)] * 2,
        [np.frombuffer(bytes(16), np.float32)],
    ],
)
def test_memory_that_does_not_fit_is_refused(wrong: list[Any]) -> None:
    pipe = Pipe(DEFAULT_LIMITS, lambda header, specs: wrong)
    with pytest.raises(ValueError, match="cannot be received into"):
        pipe.read(frame_bytes([], [np.zeros(4, np.float32)]))
    pipe.close()


def test_types_are_written_down_only_to_refuse_them() -> None:
    """That takes as long as all the rest of reading a frame, and both ends wait for it."""
    written: list[str] = []

    def note(frame: FrameType, event: str, what: object) -> None:
        if event == "call" and Path(frame.f_code.co_filename).name == "_dtype.py":
            written.append(frame.f_code.co_name)

    def read(place: PlaceArrays) -> None:
        pipe = Pipe(DEFAULT_LIMITS, place)
        sys.setprofile(note)
        try:
            pipe.read(frame_bytes([], [np.zeros(4, np.float32)]))
        finally:
            sys.setprofile(None)
            pipe.close()

    read(ArrayPool())
    assert written == []
    with pytest.raises(ValueError, match="cannot be received into"):
        read(lambda header, specs: [])
    assert "__repr__" in written


def test_memory_of_the_pool_is_used_again_when_nobody_holds_it() -> None:
    pool = ArrayPool()
    pipe = Pipe(DEFAULT_LIMITS, pool)

    def addresses(frames: list[ReadFrame]) -> set[int]:
        return {array.ctypes.data for _, arrays in frames for array in arrays}

    data = frame_bytes([], [np.zeros((10, 10_000), np.float32)])
    seen = addresses(pipe.read(data))
    for _ in range(3):
        assert addresses(pipe.read(data)) == seen
    part = pipe.read(data)[0].arrays[0][2:, 5].T  # a view of it is as good as itself
    for _ in range(3):
        assert not addresses(pipe.read(data)) & seen
    del part
    held = [pipe.read(data)[0].arrays[0] for _ in range(50)]
    assert len({array.ctypes.data for array in held}) == 50
    del held
    for _ in range(3):
        pipe.read(data)
    assert len(pool) <= 5
    pipe.close()


def prefixed(text: bytes, body: bytes = b"", body_bytes: int | None = None) -> bytes:
    size = len(body) if body_bytes is None else body_bytes
    return PREFIX.pack(MARK, len(text), size) + text + body


BAD = {
    "no frame": (b"GET / HTTP/1.1\r\n\r\n", "begins with"),
    "no JSON": (prefixed(b"{{{{"), "cannot be read"),
    "no UTF-8": (prefixed(b"[\xff\xff]"), "cannot be read"),
    "no lists": (prefixed(b'["a",{}]'), "cannot be read"),
    "one list": (prefixed(b"[[]]"), "cannot be read"),
    "a tower": (prefixed(b"[" * 100_000), "cannot be read"),
    "a huge number": (prefixed(b"[[" + b"9" * 5000 + b"],[]]"), "cannot be read"),
    "a long text": (PREFIX.pack(MARK, 2**31, 0), "2147483648 bytes of text: at most"),
    "2 GB of arrays": (
        prefixed(b'[[],[["<f4",[536870912]]]]', body_bytes=2**31),
        "2147483648 bytes of arrays: at most",
    ),
    "objects": (prefixed(b'[[],[["|O",[1]]]]', bytes(8)), "cannot be read"),
    "records": (prefixed(b'[[],[["f4,f4",[1]]]]', bytes(8)), "cannot be read"),
    "missing bytes": (prefixed(b'[[],[["<f4",[9]]]]', bytes(4)), "do not have 4 bytes"),
    "more than it says": (prefixed(b'[[],[["<f4",[268435456]]]]', bytes(4)), "do not have"),
    "less than nothing": (prefixed(b'[[],[["<f4",[-1,-1]]]]', bytes(4)), "cannot be read"),
    "half a number": (prefixed(b'[[],[["<f4",[1.0]]]]', bytes(4)), "cannot be read"),
    "a truth": (prefixed(b'[[],[["<f4",[true]]]]', bytes(4)), "cannot be read"),
    "nothing, hugely": (prefixed(b'[[],[["<f4",[0,9223372036854775807,9]]]]'), "cannot be read"),
    "many dimensions": (prefixed(b'[[],[["<f4",[' + b"1," * 40 + b"1]]]]", bytes(4)), "be read"),
    "many arrays": (
        prefixed(json.dumps([[], [["<f4", [0]]] * (MOST_ARRAYS + 1)]).encode()),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_frame_is_refused_and_no_memory_taken(name: str) -> None:
    data, why = BAD[name]
    asked: list[Any] = []

    def place(header: list[Any], specs: Any) -> list[Any]:
        asked.append(specs)
        return ArrayPool()(header, specs)

    pipe = Pipe(DEFAULT_LIMITS, place)
    with pytest.raises(FrameError, match=why):
        pipe.read(data)
    assert not asked
    pipe.close()


def test_frames_before_a_bad_one_are_handed_on(pipe: Pipe) -> None:
    came: list[ReadFrame] = []
    pipe.inlet.sendall(frame_bytes([1]) + frame_bytes([2]) + bytes(100))
    pipe.reader.fill(pipe.outlet)
    with pytest.raises(FrameError):
        came.extend(pipe.reader.frames())
    assert [header for header, _ in came] == [[1], [2]]


def test_a_stranger_may_send_no_array_not_even_an_empty_one() -> None:
    for array in (np.zeros(1), np.zeros(0)):
        pipe = Pipe(STRANGER, lambda header, specs: pytest.fail("asked for memory"))
        with pytest.raises(FrameError, match="arrays"):
            pipe.read(frame_bytes([], [array]))
        pipe.close()


@pytest.mark.parametrize(
    "wrong",
    [np.array([None]), np.zeros(2, complex), np.zeros(2, ">f4"), np.zeros([1] * 20)],
)
def test_arrays_that_nobody_could_read_are_not_sent(wrong: Any) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        frame_bytes([], [wrong])
    with pytest.raises(ValueError, match="a frame holds"):
        frame_bytes([], [np.zeros(1)] * (MOST_ARRAYS + 1))
