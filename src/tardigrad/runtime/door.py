"""A shard's end of the channels to workers on its node: a socket that they find by its name."""

import secrets
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tardigrad.runtime.connection import UnixConnection, abstract
from tardigrad.runtime.messages import Call, Packed, PushHeader
from tardigrad.runtime.setup import Life
from tardigrad.runtime.wire import Arrays, BadFrame, Frame, write_frame

FIELDS = {"push": len(PushHeader._fields), "request": 2, "ticket": 1}
"""What may be called, and how many fields it has (see `Event`)."""


class Visitor:
    """Someone at the door; `worker` once it has said who it is."""

    def __init__(self, connection: UnixConnection) -> None:
        self.connection = connection
        self.life: Life | None = None
        self.worker = -1


class Door:
    """One thread for all workers that come in: it makes their calls and sends the answers.

    One, because a shard does one thing at a time anyway, and memory that a thread has freed is
    best used again by the same.
    """

    def __init__(self, call: Callable[[Life, Call], list[Packed]]) -> None:
        self._call = call
        self._inside: dict[int, Visitor] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.name = f"tardigrad-{secrets.token_hex(16)}"
        self._socket.bind(abstract(self.name))
        self._socket.listen(128)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        threading.Thread(target=self._serve, name="door", daemon=True).start()

    def reaches(self, worker: int, incarnation: int) -> bool:
        """Whether this life of the worker has come in."""
        visitor = self._inside.get(worker)
        return (
            visitor is not None
            and visitor.life is not None
            and (visitor.life.incarnation == incarnation)
        )

    def deliver(self, worker: int, packed: Packed) -> None:
        """Tell a worker something without being called."""
        visitor = self._inside.get(worker)
        if visitor is not None:  # else it has died meanwhile, and will be replaced
            arrays = Arrays()
            visitor.connection.send(write_frame("deliver", arrays.packed([packed]), arrays))

    def show_out(self, worker: int) -> None:
        """Of a worker that has left."""
        visitor = self._inside.get(worker)
        if visitor is not None:
            visitor.connection.close()

    def close(self) -> None:
        """The thread ends, and closes everything."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._attend(key.data)
                elif not self._let_in():
                    for other in list(self._selector.get_map().values()):
                        if other.data is not None:
                            self._part(other.data)
                    self._selector.close()
                    self._socket.close()
                    return

    def _let_in(self) -> bool:
        """False where the door was closed."""
        try:
            peer, _ = self._socket.accept()
        except OSError:
            return False
        with suppress(PermissionError):
            visitor = Visitor(UnixConnection(peer))
            self._selector.register(peer, selectors.EVENT_READ, visitor)
        return True

    def _attend(self, visitor: Visitor) -> None:
        try:
            frames = visitor.connection.receive()
            for frame in frames or ():
                self._hear(visitor, frame)
            if frames is None:
                self._part(visitor)
        except BadFrame as error:
            visitor.connection.send(_error(error))
            self._part(visitor)

    def _hear(self, visitor: Visitor, frame: Frame) -> None:
        if visitor.life is not None:
            visitor.connection.send(self._answer(visitor.life, frame))
            return
        visitor.life, visitor.worker = _hello(frame)
        old = self._inside.get(visitor.worker)
        if old is not None and old.life is not None:
            if old.life.incarnation > visitor.life.incarnation:
                raise BadFrame(f"worker {visitor.worker} has been replaced")
            old.connection.close()
        self._inside[visitor.worker] = visitor
        visitor.connection.send(write_frame("welcome", []))

    def _answer(self, life: Life, frame: Frame) -> bytes:
        call = _call(frame)
        try:
            packed = self._call(life, call)
        except Exception as error:  # whoever calls is told, as Ray does it
            return _error(error)
        arrays = Arrays()
        return write_frame("answer", arrays.packed(packed), arrays)

    def _part(self, visitor: Visitor) -> None:
        self._selector.unregister(visitor.connection)
        if self._inside.get(visitor.worker) is visitor:
            del self._inside[visitor.worker]
        visitor.connection.finish()


def _hello(frame: Frame) -> tuple[Life, int]:
    if frame.kind != "hello" or [type(item) for item in frame.what] != [int, int, int]:
        raise BadFrame(f"the first frame must say who comes, not {frame.kind!r}")
    run, incarnation, worker = frame.what
    return Life(run, incarnation), worker


def _call(frame: Frame) -> Call:
    try:
        what, payload, extra = frame.what
        if len(what) != FIELDS[frame.kind]:
            raise ValueError(f"{len(what)} fields")
        fields = tuple(tuple(item) if isinstance(item, list) else item for item in what)
        arrays = tuple(frame.arrays[i] for i in extra)
        return Call(frame.kind, fields, frame.payload(payload), arrays)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise BadFrame(f"a call of {frame.kind!r} that is none ({error})") from error


def _error(error: Exception) -> bytes:
    return write_frame("error", [type(error).__name__, str(error)])
