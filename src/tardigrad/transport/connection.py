"""A socket that carries frames: any thread sends, one receives."""

import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from tardigrad.transport.frames import FrameError, TransportLimits, frame_parts
from tardigrad.transport.pool import ArrayPool, PlaceArrays
from tardigrad.transport.reader import FAST_S, FrameReader

# Combined once: flags are an enum, which takes as long to combine as a small frame to send.
SEND_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
AT_ONCE = (int(socket.MSG_DONTWAIT), int(socket.MSG_DONTWAIT))
WAITING = (0, int(socket.MSG_WAITALL))
"""Flags: of what comes first, and of what goes straight to its place."""
STREAMED = 1 << 17
FAST_BYTES = 1 << 20
"""A thread that serves many is woken for every piece of a large array, which takes longer than the
piece. So it waits for more than `STREAMED` bytes of one peer, as long as `FAST_BYTES` come in each
`FAST_S` (half a gigabyte in a second); others wait no longer than that for one that is slow."""

PROBE_AFTER_S = 10
PROBE_EVERY_S = 5

OnMessage = Callable[["Connection", list[Any], list[NDArray[Any]]], None]
"""Hears of each frame. An error in it ends the connection, with the error as the reason."""
OnClosed = Callable[["Connection", str], None]
"""Hears once why a connection ended, after its last message."""


class Connection:
    """One peer.

    Frames arrive in the order of `send`, each once, until one side closes; then any number of the
    last ones may be lost. Nobody waits for a peer that does not read: what the socket does not take
    at once is sent by a thread of the connection's own, which is there once it was needed.
    """

    def __init__(
        self,
        peer: socket.socket,
        limits: TransportLimits,
        peer_name: str,
        place: PlaceArrays | None = None,
        lock: threading.Condition | None = None,
    ) -> None:
        """lock: guards what is to be sent; a test's may do things when it is let go."""
        self.limits = limits
        self.peer_name = peer_name
        self.hello: list[Any] = []
        """What the peer said of itself when it came."""
        self.peer = peer
        self._streams = False
        self._reader = FrameReader(limits, ArrayPool() if place is None else place)
        self._state = lock or threading.Condition(threading.Lock())
        self._reason: str | None = None
        self._backlog: deque[list[memoryview]] = deque()
        self._backlog_bytes = 0
        self._sender: threading.Thread | None = None
        try:
            if peer.family != socket.AF_UNIX:
                _notice_a_dead_link(peer, limits.silent_s)
        except OSError:  # it has gone again
            peer.close()
            raise

    @property
    def closed(self) -> bool:
        return self._reason is not None

    @property
    def behind(self) -> int:
        """Frames that the peer has not read, as far as they wait here."""
        return len(self._backlog)

    def send(self, header: list[Any], arrays: Sequence[NDArray[Any]] = ()) -> None:
        """Send a frame, or part of it now and the rest as soon as the peer has read.

        Arrays are not copied: do not write to them afterwards (the connection keeps them alive
        until they are sent). Nothing happens where the connection has ended: `on_closed` tells it.
        """
        parts = frame_parts(header, arrays)
        with self._state:
            if self._reason is not None:
                return
            if not self._backlog:
                try:
                    sent = self.peer.sendmsg(parts, (), SEND_AT_ONCE)
                except BlockingIOError:
                    sent = 0
                except OSError as error:
                    self._close(_said(error))
                    return
                parts = _after(parts, sent)
            if parts:
                self._queue(parts)

    def _queue(self, parts: list[memoryview]) -> None:
        frames, most = len(self._backlog), self.limits
        if self._backlog_bytes > most.backlog_bytes or frames > most.backlog_frames:
            self._close(
                f"it is {frames} frames, {self._backlog_bytes} bytes behind in reading: at most "
                f"{most.backlog_frames} frames, {most.backlog_bytes} bytes may wait"
            )
            return
        self._backlog.append(parts)
        self._backlog_bytes += _size(parts)
        if self._sender is None:
            self._sender = threading.Thread(target=self._send_backlog, name="sender", daemon=True)
            self._sender.start()
        self._state.notify()

    def _send_backlog(self) -> None:
        while self._send_first():
            pass

    def _send_first(self) -> bool:
        """It leaves the backlog only when it is sent: who sends meanwhile must queue behind it."""
        with self._state:
            while not self._backlog and self._reason is None:
                self._state.wait()
            if self._reason is not None:
                return False
            parts = whole = self._backlog[0]
        try:
            while parts:
                parts = _after(parts, self.peer.sendmsg(parts, (), socket.MSG_NOSIGNAL))
        except OSError as error:
            self.close(_said(error))
            return False
        with self._state:
            if self._backlog:  # else it was closed meanwhile
                self._backlog.popleft()
                self._backlog_bytes -= _size(whole)
        return True

    def dispatch(self, on_message: OnMessage, wait: bool) -> bool:
        """Receive once and hand on what is whole; False where the connection has ended.

        For the one thread that receives, which must call `finish` then.
        """
        going_on = self._receive(on_message, *WAITING if wait else AT_ONCE)
        while going_on and self._streams and self._reader.rest_bytes > STREAMED:
            before = self._reader.rest_bytes
            going_on = self._receive(on_message, *WAITING)
            if before - self._reader.rest_bytes < FAST_BYTES:
                break
        return going_on

    def _receive(self, on_message: OnMessage, flags: int, body_flags: int) -> bool:
        try:
            came = self._reader.fill(self.peer, flags, body_flags)
        except BlockingIOError:
            return not self.closed
        except OSError as error:
            self.close(_said(error))
            return False
        if not came:
            inside = " inside a frame" if self._reader.inside else ""
            self.close(f"the peer has closed the connection{inside}")
            return False
        try:
            for header, arrays in self._reader.frames():
                on_message(self, header, arrays)
                if self.closed:
                    return False
        except FrameError as error:
            self.close(f"it sent {error}")
        except Exception as error:  # of whoever hears the message, or says where arrays go
            self.close(f"{type(error).__name__}: {error}")
        return not self.closed

    def admit(self, hello: list[Any], limits: TransportLimits) -> None:
        """The peer has proven who it is: from now on it may send as much as `limits` say."""
        self.hello = hello
        self.limits = self._reader.limits = limits

    def stream(self) -> None:
        """From now on, `dispatch` without `wait` does wait for large arrays that come fast."""
        with suppress(OSError):  # it has gone: who receives next is told
            self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(FAST_S))
            self._streams = True

    def close(self, reason: str = "it was closed here") -> None:
        """End it, without waiting for what is not sent yet; the first reason counts."""
        with self._state:
            self._close(reason)

    def _close(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            self._backlog.clear()
            self._state.notify_all()
            with suppress(OSError):  # the peer has gone
                self.peer.shutdown(socket.SHUT_RDWR)

    def finish(self) -> str:
        """Give the file back, when nobody can be using it any more; returns the reason."""
        self.close()
        if self._sender is not None:
            self._sender.join()
        with self._state:
            self.peer.close()
        assert self._reason is not None
        return self._reason

    def fileno(self) -> int:
        return self.peer.fileno()


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", 0, round(1e6 * seconds))


def _said(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno is not None else str(error)


def _size(parts: Sequence[memoryview]) -> int:
    return sum(len(part) for part in parts)


def _after(parts: list[memoryview], sent: int) -> list[memoryview]:
    """What is left when so many bytes have gone."""
    for place, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[place + 1 :]]
        sent -= len(part)
    return []


def _notice_a_dead_link(peer: socket.socket, silent_s: float) -> None:
    """Send small frames at once; end when the other side's machine says nothing for so long."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": PROBE_AFTER_S,
        "TCP_KEEPINTVL": PROBE_EVERY_S,
        "TCP_KEEPCNT": max(1, round((silent_s - PROBE_AFTER_S) / PROBE_EVERY_S)),
        "TCP_USER_TIMEOUT": round(1000 * silent_s),
    }
    for name, value in options.items():
        if hasattr(socket, name):  # not every system has them all
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
