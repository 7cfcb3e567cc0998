"""A worker's end: connecting to a listener."""

import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

from numpy.typing import NDArray

from tardigrad.core.checks import positive, require
from tardigrad.transport.connection import Connection, OnClosed, OnMessage
from tardigrad.transport.credentials import check_same_user
from tardigrad.transport.frames import DEFAULT_LIMITS, STRANGER, TransportLimits
from tardigrad.transport.handshake import HandshakeError, PeerHandshake, check_secret
from tardigrad.transport.listener import ListenerAddress
from tardigrad.transport.pool import PlaceArrays

FIRST_PAUSE_S = 0.02
MOST_PAUSE_S = 1.0


def connect(
    address: ListenerAddress,
    secret: bytes,
    near: bool,
    hello: list[Any],
    on_message: OnMessage,
    on_closed: OnClosed,
    timeout_s: float,
    limits: TransportLimits = DEFAULT_LIMITS,
    place: PlaceArrays | None = None,
) -> Connection:
    """Connect, and prove to each other that both know the secret; then a thread receives.

    near: through the Unix socket, on the listener's machine; else by TCP. Callbacks are called on
    that thread, perhaps before this returns. Raises `HandshakeError` where a secret is wrong,
    `TimeoutError` after `timeout_s`, another `OSError` where nobody listens or no way leads there.
    """
    check_secret(secret)
    positive("timeout_s", timeout_s)
    require(near or bool(address.host), f"{address.name} does not listen on TCP: give it a host")
    until, pause_s = time.monotonic() + timeout_s, FIRST_PAUSE_S
    while True:
        try:
            handshake = PeerHandshake(secret, address.name, hello)
            peer, name = _reach(address, near, until)
            stranger = STRANGER._replace(silent_s=limits.silent_s)
            connection = Connection(peer, stranger, name, place)
            return _Opening(connection, handshake, limits, on_message, on_closed).wait(until)
        except _Dropped:
            if time.monotonic() + pause_s > until:
                raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)


class _Dropped(ConnectionError):
    """The listener let go of us before it knew who we are: it may be crowded."""


def _reach(address: ListenerAddress, near: bool, until: float) -> tuple[socket.socket, str]:
    left_s = max(0.001, until - time.monotonic())
    if not near:
        peer = socket.create_connection((address.host, address.port), left_s)
        peer.settimeout(None)
        return peer, f"{address.host}:{address.port}"
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        peer.settimeout(left_s)
        peer.connect(address.abstract())
        check_same_user(peer)
    except BlockingIOError as error:
        peer.close()
        raise _Dropped(f"too many wait at {address.name}") from error
    except OSError:
        peer.close()
        raise
    peer.settimeout(None)
    return peer, address.name


class _Opening:
    """The handshake and then the messages, on the thread that receives."""

    def __init__(
        self,
        connection: Connection,
        handshake: PeerHandshake,
        limits: TransportLimits,
        on_message: OnMessage,
        on_closed: OnClosed,
    ) -> None:
        self._connection, self._handshake = connection, handshake
        self._limits = limits
        self._on_message, self._on_closed = on_message, on_closed
        self._answered = self._open = False
        self._outcome: Future[None] = Future()
        threading.Thread(target=self._receive, name="receiver", daemon=True).start()

    def wait(self, until: float) -> Connection:
        """The connection once it is open. Nobody hears anything of one that never was."""
        try:
            self._outcome.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            if self._outcome.cancel():
                reason = f"{self._connection.peer_name} did not finish the handshake in time"
                self._connection.close(reason)
                raise TimeoutError(reason) from None
            self._outcome.result()  # it was decided just now
        return self._connection

    def _receive(self) -> None:
        connection = self._connection
        while not self._open and connection.dispatch(self._shake_hands, wait=True):
            pass
        while connection.dispatch(self._on_message, wait=True):
            pass
        reason = connection.finish()
        if self._open:
            self._on_closed(connection, reason)
        else:
            why = f"{connection.peer_name} ended the connection in the handshake: {reason}"
            self._decide(_Dropped(why))

    def _shake_hands(
        self, connection: Connection, header: list[Any], arrays: list[NDArray[Any]]
    ) -> None:
        if self._open:  # it came together with the welcome
            self._on_message(connection, header, arrays)
            return
        try:
            if not self._answered:
                connection.send(self._handshake.answer(header))
                self._answered = True
            else:
                self._handshake.check(header)
                connection.admit([], self._limits)
                self._open = self._decide(None)
        except HandshakeError as error:
            self._decide(error)
            connection.close(str(error))

    def _decide(self, error: Exception | None) -> bool:
        """False where it has been decided, or nobody waits any more."""
        if self._outcome.done() or not self._outcome.set_running_or_notify_cancel():
            return False
        if error is None:
            self._outcome.set_result(None)
        else:
            self._outcome.set_exception(error)
        return True
