"""A worker's way to one shard's process: connected again whenever the connection ends."""

import threading
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from tardigrad.runtime.encoding import EncodedMessage
from tardigrad.transport.connect import connect
from tardigrad.transport.connection import Connection
from tardigrad.transport.listener import ListenerAddress

CONNECT_S = 10.0
PAUSES_S = (0.05, 0.2, 1.0)
"""Between tries to connect, the last one for all that follow."""

OnFrame = Callable[["ShardLink", list[Any], list[NDArray[Any]]], None]


class ShardLink:
    """Callbacks come on threads of its own. A shard that has died is brought back as another
    process, of which the worker is told: this link is closed then, and another made."""

    def __init__(
        self,
        address: ListenerAddress,
        secret: bytes,
        near: bool,
        hello: list[Any],
        heard: OnFrame,
        connected: Callable[["ShardLink"], None],
    ) -> None:
        """near: through the Unix socket. connected: called each time, when it can be sent to."""
        self._address, self._secret, self._near, self._hello = address, secret, near, hello
        self._heard, self._connected = heard, connected
        self._connection: Connection | None = None
        self._closed = threading.Event()
        self._tries = 0

    def start(self) -> None:
        threading.Thread(target=self._run, name="link", daemon=True).start()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def send(self, encoded: EncodedMessage) -> None:
        """Nothing happens without a connection: as soon as there is one, `connected` is called."""
        connection = self._connection
        if connection is not None:
            connection.send(encoded.header, encoded.arrays)

    def close(self, reason: str) -> None:
        self._closed.set()
        connection = self._connection
        if connection is not None:
            connection.close(reason)

    def _run(self) -> None:
        while not self.closed:
            parted = threading.Event()
            try:
                connection = self._connect(parted)
            except OSError:
                self._pause()
                continue
            self._connection = connection
            if self.closed:  # meanwhile, by somebody who found no connection to close
                connection.close("it is not needed any more")
            else:
                self._connected(self)
            parted.wait()
            self._connection = None
            self._pause()

    def _connect(self, parted: threading.Event) -> Connection:
        return connect(
            self._address,
            self._secret,
            self._near,
            self._hello,
            lambda connection, header, arrays: self._hear(header, arrays),
            lambda connection, reason: parted.set(),
            CONNECT_S,
        )

    def _hear(self, header: list[Any], arrays: list[NDArray[Any]]) -> None:
        self._tries = 0
        if not self.closed:
            self._heard(self, header, arrays)

    def _pause(self) -> None:
        """Longer and longer, as long as nothing is heard: a shard may turn this worker away."""
        self._closed.wait(PAUSES_S[min(self._tries, len(PAUSES_S) - 1)])
        self._tries += 1
