"""Where peers come in: a Unix socket for those on this machine, TCP for the others."""

import errno
import logging
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tardigrad.core.checks import require
from tardigrad.transport.connection import Connection, OnClosed, OnMessage
from tardigrad.transport.credentials import check_same_user
from tardigrad.transport.frames import DEFAULT_LIMITS, STRANGER, TransportLimits
from tardigrad.transport.handshake import (
    HandshakeError,
    ListenerHandshake,
    check_secret,
    refusal,
)
from tardigrad.transport.pool import ArrayPool, PlaceArrays

_log = logging.getLogger(__name__)

OnOpen = Callable[[Connection, list[Any]], None]
"""Hears of a peer that has come in, and of its hello."""

BACKLOG = 1024
ACCEPT_AT_ONCE = 32
"""Then those who are in have their turn."""
ACCEPT_PAUSE_S = 0.1
PASSING = {
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.EPERM,
    errno.ENETDOWN,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
}
"""Errors of `accept` that are of the one connection that it would have been."""
WILDCARDS = ("", "0.0.0.0", "::")


class ListenerAddress(NamedTuple):
    """Where a listener is found, in plain data: `ListenerAddress(*list(address))` is the same."""

    name: str
    """Of this listener alone, and of its Unix socket."""
    host: str = ""
    """Empty where it does not listen on TCP."""
    port: int = 0

    def abstract(self) -> bytes:
        """The socket's name, which no file holds and which goes with the process."""
        return b"\0" + self.name.encode()


class _Pending(NamedTuple):
    """A peer that has not proven yet that it knows the secret."""

    handshake: ListenerHandshake
    until: float


class Listener:
    """All peers of a shard, served by one thread.

    One, because a shard does one thing at a time anyway, and memory that a thread has freed is best
    used again by the same. Callbacks are called on it. Strangers cost little and only for a while:
    they may send tiny frames only, and at most `limits.pending` are kept, the newest.
    """

    def __init__(
        self,
        on_message: OnMessage,
        on_open: OnOpen,
        on_closed: OnClosed,
        secret: bytes,
        host: str | None,
        limits: TransportLimits = DEFAULT_LIMITS,
        place: PlaceArrays | None = None,
    ) -> None:
        """host: this machine's own address, where other nodes reach it; None: this machine only."""
        check_secret(secret)
        require(
            host not in WILDCARDS,
            f"host = {host!r}: give the one address of this machine that the others know",
        )
        self._on_message, self._on_open, self._on_closed = on_message, on_open, on_closed
        self._secret, self._limits = secret, limits
        self._place = ArrayPool() if place is None else place
        self._pending: dict[Connection, _Pending] = {}
        self._inside: set[Connection] = set()
        self._paused: dict[socket.socket, float] = {}
        self._closing = False
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._sockets: list[socket.socket] = []
        self.address = self._listen(host)
        self._thread = threading.Thread(target=self._serve, name="listener", daemon=True)
        self._thread.start()

    def _listen(self, host: str | None) -> ListenerAddress:
        address = ListenerAddress(f"tardigrad-{secrets.token_hex(16)}")
        if sys.platform == "linux":
            near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            near.bind(address.abstract())
            self._sockets.append(near)
        if host is not None:
            family, _, _, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            far = socket.socket(family, socket.SOCK_STREAM)
            self._sockets.append(far)
            try:
                far.bind(where)
            except OSError as error:
                self._give_up()
                raise OSError(error.errno, f"cannot listen at {host}: {error.strerror}") from None
            address = address._replace(host=host, port=far.getsockname()[1])
        for listening in self._sockets:
            listening.setblocking(False)
            listening.listen(BACKLOG)
            self._selector.register(listening, selectors.EVENT_READ, listening)
        return address

    def close(self) -> None:
        """The thread ends, and closes everything."""
        self._closing = True
        with suppress(OSError):  # it has ended
            self._wake.send(b"\0")

    def _serve(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(self._timeout_s()):
                if isinstance(key.data, Connection):
                    self._attend(key.data)
                elif key.data is not None:
                    self._accept(key.data)
            self._expire(time.monotonic())
        for connection in [*self._pending, *self._inside]:
            connection.close("the listener was closed")
            self._part(connection)
        self._give_up()

    def _give_up(self) -> None:
        self._selector.close()
        for each in [*self._sockets, self._wake, self._woken]:
            each.close()

    def _timeout_s(self) -> float | None:
        times = list(self._paused.values())
        if self._pending:
            times.append(next(iter(self._pending.values())).until)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _expire(self, now: float) -> None:
        for connection, pending in list(self._pending.items()):
            if pending.until > now:
                break
            self._drop(connection, "it took too long to prove that it knows the secret")
        for listening, until in list(self._paused.items()):
            if until <= now:
                del self._paused[listening]
                self._selector.register(listening, selectors.EVENT_READ, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_AT_ONCE):
            try:
                peer, where = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in PASSING:
                    continue
                # No files or memory left, perhaps: what strangers hold is given back first.
                for connection in list(self._pending):
                    self._drop(connection, "there is no room")
                self._selector.unregister(listening)
                self._paused[listening] = time.monotonic() + ACCEPT_PAUSE_S
                return
            try:
                self.meet(peer, f"{where[0]}:{where[1]}" if where else "this machine")
            except OSError:  # it has gone, or is another user's
                peer.close()

    def meet(self, peer: socket.socket, name: str) -> None:
        peer.setblocking(True)
        if peer.family == socket.AF_UNIX:
            check_same_user(peer)
        limits = STRANGER._replace(silent_s=self._limits.silent_s)
        connection = Connection(peer, limits, name, self._place)
        if len(self._pending) >= self._limits.pending:
            self._drop(next(iter(self._pending)), "newer ones wait")
        self._selector.register(peer, selectors.EVENT_READ, connection)
        handshake = ListenerHandshake(self._secret, self.address.name)
        until = time.monotonic() + self._limits.handshake_s
        self._pending[connection] = _Pending(handshake, until)
        connection.send(handshake.challenge())

    def _drop(self, connection: Connection, reason: str) -> None:
        """Without a word, so that it tries again where it is one of ours."""
        connection.close(reason)
        self._part(connection)

    def _attend(self, connection: Connection) -> None:
        if connection not in self._inside and connection not in self._pending:
            return  # it was dropped since the selector saw it
        if not connection.dispatch(self._hear, wait=False):
            self._part(connection)

    def _hear(self, connection: Connection, header: list[Any], arrays: list[NDArray[Any]]) -> None:
        if connection in self._inside:
            self._on_message(connection, header, arrays)
            return
        try:
            hello, welcome = self._pending[connection].handshake.check(header)
        except HandshakeError as error:
            connection.send(refusal(str(error)))
            connection.close(str(error))
            return
        del self._pending[connection]
        connection.admit(hello, self._limits)
        connection.stream()
        connection.send(welcome)
        self._inside.add(connection)
        self._on_open(connection, hello)

    def _part(self, connection: Connection) -> None:
        self._selector.unregister(connection)
        self._pending.pop(connection, None)
        reason = connection.finish()
        if connection in self._inside:
            self._inside.discard(connection)
            try:
                self._on_closed(connection, reason)
            except Exception:  # the others are served on
                _log.exception("an error while hearing that %s has gone", connection.peer_name)
