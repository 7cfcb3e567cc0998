"""A shard's end of the channels to workers on its node: a socket that they find by its name."""

import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tardigrad.runtime.connection import Connection, abstract
from tardigrad.runtime.messages import Call, Packed, Push
from tardigrad.runtime.setup import Life
from tardigrad.runtime.wire import Arrays, BadFrame, Frame, write_frame

FIELDS = {"push": len(Push._fields), "request": 2, "ticket": 1}
"""What may be called, and how many fields it has (see `Event`)."""


class Door:
    """One thread for each worker that came in: it makes the call and sends the answer."""

    def __init__(self, call: Callable[[Life, Call], list[Packed]]) -> None:
        self._call = call
        self._inside: dict[int, tuple[Life, Connection]] = {}
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.name = f"tardigrad-{secrets.token_hex(16)}"
        self._socket.bind(abstract(self.name))
        self._socket.listen(128)
        threading.Thread(target=self._let_in, name="door", daemon=True).start()

    def reaches(self, worker: int, incarnation: int) -> bool:
        """Whether this life of the worker has come in."""
        inside = self._inside.get(worker)
        return inside is not None and inside[0].incarnation == incarnation

    def deliver(self, worker: int, packed: Packed) -> None:
        """Tell a worker something without being called."""
        arrays = Arrays()
        frame = write_frame("deliver", arrays.packed([packed]), arrays)
        with self._lock:
            inside = self._inside.get(worker)
        if inside is not None:  # else it has died meanwhile, and will be replaced
            inside[1].send(frame)

    def show_out(self, worker: int) -> None:
        """Of a worker that has left or was replaced."""
        with self._lock:
            _, connection = self._inside.pop(worker, (None, None))
        if connection is not None:
            connection.close()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()
        for worker in list(self._inside):
            self.show_out(worker)

    def _let_in(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return  # closed
            with suppress(PermissionError):
                serve = threading.Thread(target=self._serve, args=(Connection(peer),), daemon=True)
                serve.start()

    def _serve(self, connection: Connection) -> None:
        who = None
        try:
            for frame in connection.frames():
                if who is not None:
                    connection.send(self._answer(who[0], frame))
                    continue
                who = _hello(frame)
                if not self._enter(*who, connection):
                    return
                connection.send(write_frame("welcome", []))
        except BadFrame as error:
            connection.send(_error(error))
        finally:
            connection.finish()
            if who is not None:
                self._gone(*who)

    def _enter(self, life: Life, worker: int, connection: Connection) -> bool:
        """False where a later life of the worker is in already."""
        with self._lock:
            before, old = self._inside.get(worker, (life, None))
            if before.incarnation > life.incarnation:
                return False
            self._inside[worker] = (life, connection)
        if old is not None:
            old.close()
        return True

    def _gone(self, life: Life, worker: int) -> None:
        with self._lock:
            if self.reaches(worker, life.incarnation):
                del self._inside[worker]

    def _answer(self, life: Life, frame: Frame) -> bytes:
        call = _call(frame)
        try:
            packed = self._call(life, call)
        except Exception as error:  # whoever calls is told, as Ray does it
            return _error(error)
        arrays = Arrays()
        return write_frame("answer", arrays.packed(packed), arrays)


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
