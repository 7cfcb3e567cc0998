"""Connections between peers that know the secret: order, places, and peers that do not read."""

import socket
import struct
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from tardigrad.transport.connection import Connection
from tardigrad.transport.frames import DEFAULT_LIMITS, TransportLimits
from tardigrad.transport.listener import Listener
from tests.transport.transport_peers import (
    HOST,
    SECRET,
    Client,
    Echo,
    frame_bytes,
    open_files,
    until,
)

WAYS = pytest.mark.parametrize("near", [False, True], ids=["tcp", "unix"])


@WAYS
def test_a_frame_comes_back_as_it_was_sent(echo: Echo, near: bool) -> None:
    client = Client(echo.address, near, hello=["worker", 3, float("inf")])
    until(lambda: echo.opened)
    assert [hello for _, hello in echo.opened] == [["worker", 3, float("inf")]]
    assert echo.opened[0][0].hello == ["worker", 3, float("inf")]
    sent = [np.arange(n, dtype=np.float32) for n in (0, 1, 100_000, 3_000_000)]
    header, arrays = client.ask(["push", [1, None, "ü"]], sent)
    assert header == ["push", [1, None, "ü"]]
    for array, expected in zip(arrays, sent, strict=True):
        assert np.array_equal(array, expected)
    client.connection.close()
    until(lambda: echo.closed)
    assert echo.closed == [(echo.opened[0][0], "the peer has closed the connection")]
    until(lambda: client.reasons)
    assert client.reasons == ["it was closed here"]


@WAYS
def test_what_comes_is_written_to_the_memory_that_was_handed_out(echo: Echo, near: bool) -> None:
    view = np.zeros(2_000_000, np.float32)
    client = Client(echo.address, near, place=lambda header, specs: [view[header[0] :]])
    _, (array,) = client.ask([500_000], [np.ones(1_500_000, np.float32)])
    assert np.shares_memory(array, view)
    assert view.tolist() == [0.0] * 500_000 + [1.0] * 1_500_000
    client.connection.close()


@WAYS
def test_every_thread_is_heard_in_its_order(echo: Echo, near: bool) -> None:
    """Large frames between small ones: what the socket does not take at once must not overtake."""
    client = Client(echo.address, near)
    threads, each = 8, 150

    def send(thread: int) -> None:
        for number in range(each):
            size = 300_000 if number % 50 == 7 else number
            client.connection.send([thread, number], [np.full(size, number, np.int32)])

    started = [threading.Thread(target=send, args=(thread,)) for thread in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    until(lambda: len(client.came) == threads * each)
    for number in range(threads):
        assert [h[1] for h, _ in client.came if h[0] == number] == list(range(each))
    assert all((array == header[1]).all() for header, (array,) in client.came)
    client.connection.close()


@WAYS
def test_nobody_waits_for_a_peer_that_does_not_read(echo: Echo, near: bool) -> None:
    """It is told everything, in order, when it reads again; others are served meanwhile."""
    go_on, stopped = threading.Event(), threading.Event()
    came: list[Any] = []

    def slow(_: Connection, header: list[Any], arrays: list[Any]) -> None:
        stopped.set()
        go_on.wait()
        came.append((header[0], int(arrays[0][-1])))

    client = Client(echo.address, near)
    slow_client = Client(echo.address, near, on_message=slow)
    until(lambda: len(echo.opened) == 2)
    peer = echo.opened[-1][0]
    for number in range(40):
        peer.send([number], [np.full(500_000, number, np.int32)])  # 80 MB in all
    stopped.wait()
    assert client.ask(["y"])[0] == ["y"]
    assert not came
    go_on.set()
    until(lambda: len(came) == 40)
    assert came == [(number, number) for number in range(40)]
    slow_client.connection.close()
    client.connection.close()


def pair(limits: TransportLimits = DEFAULT_LIMITS) -> tuple[Connection, socket.socket]:
    ours, theirs = socket.socketpair()
    return Connection(ours, limits, "the other end"), theirs


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        (DEFAULT_LIMITS._replace(backlog_bytes=3_000_000), 1_000_000),
        (DEFAULT_LIMITS._replace(backlog_frames=5), 1_000_000),
    ],
)
def test_a_peer_that_is_too_far_behind_is_cut_off(limits: TransportLimits, size: int) -> None:
    connection, peer = pair(limits)
    sent = 0
    while not connection.closed and sent < 1000:
        connection.send([sent], [np.zeros(size, np.int8)])
        sent += 1
    assert 4 <= sent <= 8
    reason = connection.finish()
    assert "behind in reading: at most" in reason
    peer.close()


def test_one_frame_may_wait_however_large() -> None:
    connection, peer = pair(DEFAULT_LIMITS._replace(backlog_bytes=10))
    connection.send([1], [np.zeros(5_000_000, np.int8)])
    assert not connection.closed
    expected = frame_bytes([1], [np.zeros(5_000_000, np.int8)])
    came = b""
    while len(came) < len(expected):
        came += peer.recv(1 << 20)
    assert came == expected
    connection.finish()
    peer.close()


def test_arrays_that_wait_are_kept_alive_and_let_go_when_sent() -> None:
    """The memory of a version that waits to be sent must not be used for another one."""
    connection, peer = pair()
    array = np.ones(5_000_000, np.int8)
    alive = weakref.ref(array)
    connection.send([1], [array])
    del array
    assert alive() is not None
    left = len(frame_bytes([1], [np.ones(5_000_000, np.int8)]))
    while left:
        left -= len(peer.recv(1 << 20))
    until(lambda: alive() is None)
    connection.finish()
    peer.close()


class Meddler(threading.Condition):
    """A lock after whose release, in the thread that sends the rest, more is sent at once."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())
        self.more = [1]
        self.sender: Connection | None = None

    def __exit__(self, *of: Any) -> None:
        super().__exit__(*of)
        here = threading.current_thread() is threading.main_thread()
        if not here and self.sender is not None and not self.sender.behind and self.more:
            self.sender.send([self.more.pop()], [np.zeros(500_000, np.int8)])


def test_two_threads_never_send_the_same_rest() -> None:
    """What could not be sent at once is just gone as more comes that cannot be sent at once."""
    ours, other = socket.socketpair()
    lock = Meddler()
    sender = lock.sender = Connection(ours, DEFAULT_LIMITS, "the other end", lock=lock)
    reader = Connection(other, DEFAULT_LIMITS, "the sender")
    came: list[int] = []

    def hear(_: Connection, header: list[Any], arrays: list[Any]) -> None:
        came.append(header[0])

    sender.send([0], [np.zeros(500_000, np.int8)])
    while len(came) < 2:
        assert reader.dispatch(hear, wait=True)
    sender.send([2], [np.zeros(500_000, np.int8)])
    while len(came) < 3:
        assert reader.dispatch(hear, wait=True)
    assert came == [0, 1, 2]
    sender.finish()
    reader.finish()


def test_a_peer_that_ends_inside_a_frame_is_told_so() -> None:
    connection, peer = pair()
    came: list[Any] = []
    data = frame_bytes(["whole"]) + frame_bytes(["half"], [np.zeros(100)])
    peer.sendall(data[:-1])
    peer.close()
    while connection.dispatch(lambda _, header, arrays: came.append(header), wait=True):
        pass
    assert connection.finish() == "the peer has closed the connection inside a frame"
    assert came == [["whole"]]


def test_an_error_of_the_system_is_told_as_the_reason() -> None:
    with socket.create_server((HOST, 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        connection = Connection(listening.accept()[0], DEFAULT_LIMITS, "the other end")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()  # a reset, as from a machine that has started anew
    assert not connection.dispatch(lambda *_: None, wait=True)
    assert connection.finish() == "Connection reset by peer"


def test_an_error_in_hearing_ends_that_connection_alone() -> None:
    closed: list[str] = []

    def hear(peer: Connection, header: list[Any], arrays: list[Any]) -> None:
        peer.send([1 / header[0]])

    def gone(_: Connection, reason: str) -> None:
        closed.append(reason)
        raise RuntimeError("an error in hearing of it")

    listener = Listener(hear, lambda *_: None, gone, SECRET, None)
    bad, good = Client(listener.address, near=True), Client(listener.address, near=True)
    bad.connection.send([0])
    until(lambda: bad.reasons)
    until(lambda: closed)
    assert closed == ["ZeroDivisionError: division by zero"]
    assert good.ask([4])[0] == [0.25]
    listener.close()
    until(lambda: good.reasons)
    assert good.reasons == ["the peer has closed the connection"]


def test_nothing_is_left_when_both_have_closed() -> None:
    before, threads = open_files(), threading.active_count()
    echo = Echo()
    clients = [Client(echo.address, near) for near in (True, False) for _ in range(4)]
    for client in clients:
        client.connection.send([0], [np.zeros(4_000_000, np.int8)])  # senders run
    until(lambda: len(echo.opened) == len(clients))
    clients[0].connection.close()
    echo.opened[1][0].close("no longer wanted")
    echo.listener.close()
    until(lambda: open_files() <= before)
    until(lambda: threading.active_count() <= threads)
    assert all(len(client.reasons) == 1 for client in clients)
    assert len(echo.closed) == len(clients)
    reasons = dict(echo.closed)
    assert reasons[echo.opened[1][0]] == "no longer wanted"
    for peer, _ in echo.opened:
        peer.send(["nobody is there, and nothing happens"])


def test_who_stops_in_the_middle_of_an_array_holds_up_nobody(echo: Echo) -> None:
    """Not even where its first part came fast."""
    slow, other = Client(echo.address), Client(echo.address)
    frame = frame_bytes(["slow"], [np.arange(3_000_000.0)])
    slow.connection.peer.sendall(frame[: 2 * len(frame) // 3])
    for i in range(50):
        assert other.ask([i], [np.full(400_000, i, np.float32)])[0] == [i]
    slow.connection.peer.sendall(frame[2 * len(frame) // 3 :])
    until(lambda: slow.came)
    ((header, (array,)),) = slow.came
    assert header == ["slow"]
    assert np.array_equal(array, np.arange(3_000_000.0))


def test_a_dead_link_is_noticed_without_a_word_from_it(echo: Echo) -> None:
    """What the kernel is told; that it does so is tried between hosts of their own."""
    client = Client(echo.address)
    until(lambda: echo.opened)
    for connection in (echo.opened[0][0], client.connection):
        peer = connection.peer
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        idle = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        every = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert idle + every * peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 30
