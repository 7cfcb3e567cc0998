"""A socket between two processes of one machine and one user, that carries frames.

Sockets have abstract names, which no file holds and which go with the process, however it went.
"""

import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

from tardigrad.runtime.wire import Frame, split_frames

CREDENTIALS = struct.Struct("3i")
CHUNK = 1 << 16


class UnixConnection:
    """One thread receives; any may send, and nobody waits for a peer that does not read."""

    def __init__(self, peer: socket.socket) -> None:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        _, user, _ = CREDENTIALS.unpack(credentials)
        if user != os.getuid():
            peer.close()
            raise PermissionError(f"a process of user {user} at the socket of user {os.getuid()}")
        self._socket = peer
        self._data = bytearray()
        self._sending = threading.Lock()
        self._backlog: deque[bytes] = deque()

    def send(self, frame: bytes) -> None:
        """Nothing happens where the peer has gone: whoever misses it will find out."""
        with self._sending:
            if not self._backlog:
                try:
                    sent = self._socket.send(frame, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    sent = 0
                except OSError:
                    return
                if sent == len(frame):
                    return
                self._backlog.append(frame[sent:])
                threading.Thread(target=self._send_rest, daemon=True).start()
            else:
                self._backlog.append(frame)

    def _send_rest(self) -> None:
        """One thread at a time: it ends as it empties the backlog, before another can start."""
        with suppress(OSError):
            while True:
                self._socket.sendall(self._backlog[0])
                with self._sending:
                    self._backlog.popleft()
                    if not self._backlog:
                        return

    def receive(self) -> Iterator[Frame] | None:
        """What has come, waiting for something; None where the peer has gone."""
        try:
            data = self._socket.recv(CHUNK)
        except OSError:
            data = b""
        if not data:
            return None
        self._data += data
        return split_frames(self._data)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Whoever receives hears that the peer has gone, and finishes."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        self._socket.close()


def abstract(name: str) -> bytes:
    return b"\0" + name.encode()
