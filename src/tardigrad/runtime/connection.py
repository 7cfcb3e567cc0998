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

from tardigrad.runtime.wire import Frame, read_frame

CREDENTIALS = struct.Struct("3i")


class Connection:
    """One thread reads; any may send, and nobody waits for a peer that does not read."""

    def __init__(self, peer: socket.socket) -> None:
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        _, user, _ = CREDENTIALS.unpack(credentials)
        if user != os.getuid():
            peer.close()
            raise PermissionError(f"a process of user {user} at the socket of user {os.getuid()}")
        self._socket = peer
        self._stream = peer.makefile("rb")
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
                frame = frame[sent:]
                threading.Thread(target=self._send_rest, daemon=True).start()
            self._backlog.append(frame)

    def _send_rest(self) -> None:
        with suppress(OSError):
            while True:
                with self._sending:
                    if not self._backlog:
                        return
                    frame = self._backlog[0]
                self._socket.sendall(frame)
                with self._sending:
                    self._backlog.popleft()

    def frames(self) -> Iterator[Frame]:
        """What comes, until the peer has gone or we have closed; `finish` then."""
        with suppress(OSError):
            while (frame := read_frame(self._stream)) is not None:
                yield frame

    def close(self) -> None:
        """Whoever reads comes to the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        """By whoever reads, at the end."""
        self._stream.close()
        self._socket.close()


def abstract(name: str) -> bytes:
    return b"\0" + name.encode()
