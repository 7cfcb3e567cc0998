"""Listeners and peers for the tests of the transport."""

import os
import socket
import time
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from tardigrad.transport.connect import connect
from tardigrad.transport.connection import Connection, OnMessage
from tardigrad.transport.frames import DEFAULT_LIMITS, TransportLimits, frame_parts
from tardigrad.transport.listener import Listener, ListenerAddress
from tardigrad.transport.pool import PlaceArrays

SECRET = b"a secret of this run alone"
HOST = "127.0.0.1"


def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def frame_bytes(header: list[Any], arrays: list[NDArray[Any]] | None = None) -> bytes:
    return b"".join(frame_parts(header, arrays or []))


class Echo:
    """A listener that sends every frame back, and remembers who came and went."""

    def __init__(self, limits: TransportLimits = DEFAULT_LIMITS, host: str | None = HOST) -> None:
        self.opened: list[tuple[Connection, list[Any]]] = []
        self.closed: list[tuple[Connection, str]] = []
        self.listener = Listener(
            lambda peer, header, arrays: peer.send(header, arrays),
            lambda peer, hello: self.opened.append((peer, hello)),
            lambda peer, reason: self.closed.append((peer, reason)),
            SECRET,
            host,
            limits,
        )

    @property
    def address(self) -> ListenerAddress:
        return self.listener.address


class Client:
    """A peer that keeps all that it hears."""

    def __init__(
        self,
        address: ListenerAddress,
        near: bool = False,
        secret: bytes = SECRET,
        hello: list[Any] | None = None,
        place: PlaceArrays | None = None,
        limits: TransportLimits = DEFAULT_LIMITS,
        timeout_s: float = 30.0,
        on_message: OnMessage | None = None,
    ) -> None:
        self.came: list[tuple[list[Any], list[NDArray[Any]]]] = []
        self.reasons: list[str] = []
        self.connection = connect(
            address,
            secret,
            near,
            [] if hello is None else hello,
            on_message or (lambda _, header, arrays: self.came.append((header, arrays))),
            lambda _, reason: self.reasons.append(reason),
            timeout_s,
            limits,
            place,
        )

    def ask(self, header: list[Any], arrays: list[NDArray[Any]] | None = None) -> Any:
        before = len(self.came)
        self.connection.send(header, arrays or [])
        until(lambda: len(self.came) > before or self.reasons)
        assert not self.reasons
        return self.came[-1]


def stranger(address: ListenerAddress, near: bool = False) -> socket.socket:
    """Someone who has connected and says nothing."""
    if near:
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(address.abstract())
    else:
        peer = socket.create_connection((address.host, address.port))
    peer.settimeout(30)
    return peer


def all_of(peer: socket.socket) -> bytes:
    """What a peer says before it ends the connection, and the connection is closed."""
    said = b""
    try:
        while part := peer.recv(1 << 16):
            said += part
    except ConnectionResetError:
        pass
    peer.close()
    return said
