"""A worker's end of its channel to a shard: a socket where they share a node, else Ray calls.

Either way a call is a `Call`, and its answer is what the shard released in it, or the error it was
refused with. A call whose shard has died gets no answer: the driver brings the shard back, and the
worker calls again what was not answered.
"""

import queue
import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ray
from ray.exceptions import (
    ActorUnavailableError,
    ObjectFetchTimedOutError,
    ObjectLostError,
    RayActorError,
    RayTaskError,
)

from tardigrad.runtime.connection import UnixConnection, abstract
from tardigrad.runtime.control import Refused
from tardigrad.runtime.messages import Call, Packed
from tardigrad.runtime.setup import Life, Place
from tardigrad.runtime.transport import arguments, heard
from tardigrad.runtime.wire import Arrays, Frame, write_frame

Heard = Callable[[list[Packed] | BaseException], None]

UNREACHABLE_S = 0.5
"""How long to wait before calling again a shard that cannot be reached for the moment."""


class Channel(ABC):
    @abstractmethod
    def call(self, call: Call, answered: Heard) -> None:
        """Answers come on another thread, in the order of the calls."""

    @abstractmethod
    def close(self) -> None: ...


def open_channel(
    handle: Any,
    place: Place,
    here: Place,
    life: Life,
    worker: int,
    delivered: Heard,
    pieces: int = 0,
) -> Channel:
    """To the shard at `place`; `delivered` hears what comes through the socket without a call.

    pieces: in how many a version of this shard travels (`count_pieces`), where Ray carries it.
    """
    if place.door and place.near(here):
        return SocketChannel(place.door, life, worker, delivered)
    return RayChannel(handle, life, pieces)


class RayChannel(Channel):
    """One thread waits for answers; whoever calls sends."""

    def __init__(self, handle: Any, life: Life, pieces: int = 0) -> None:
        self._handle, self._life, self._pieces = handle, life, pieces
        self._closed = False
        self._asked: queue.SimpleQueue[_Sent | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def call(self, call: Call, answered: Heard) -> None:
        method = self._handle.call_by_ray.options(num_returns=1 + self._pieces)
        header = call._replace(payload=None)
        results = method.remote(self._life, self._pieces, header, *arguments(call.payload))
        self._asked.put(_Sent(call, answered, results if self._pieces else [results]))

    def _listen(self) -> None:
        while (sent := self._asked.get()) is not None:
            self._answer(sent)
            del sent  # and with it what was returned

    def _answer(self, sent: "_Sent") -> None:
        try:
            found = heard(ray.get(sent.results))
        except RayTaskError as error:  # refused: the error names the worker and says why
            sent.answered(error.cause)
        except ActorUnavailableError:
            again = threading.Timer(UNREACHABLE_S, self._again, (sent,))
            again.daemon = True
            again.start()
        except ObjectFetchTimedOutError as error:  # its shard may well be alive
            sent.answered(error)
        except (RayActorError, ObjectLostError):
            pass
        except Exception as error:  # the run ends with it
            sent.answered(error)
        else:
            try:
                sent.answered(found)
            except Exception as error:  # ours, or a policy's: the run ends with it
                sent.answered(error)

    def _again(self, sent: "_Sent") -> None:
        if not self._closed:
            self.call(sent.call, sent.answered)

    def close(self) -> None:
        self._closed = True
        self._asked.put(None)


class _Sent(NamedTuple):
    """A call that Ray carries, and what it will return."""

    call: Call
    answered: Heard
    results: list[Any]


class SocketChannel(Channel):
    """One thread reads what comes; whoever calls sends."""

    def __init__(self, door: str, life: Life, worker: int, delivered: Heard) -> None:
        self._delivered = delivered
        self._waiting: deque[Heard] = deque()
        self._calling = threading.Lock()
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.connect(abstract(door))
        except OSError:  # its shard has died: the driver brings it back and connects us again
            peer.close()
            self._connection = None
            return
        self._connection = connection = UnixConnection(peer)
        connection.send(write_frame("hello", [*life, worker]))
        first = connection.receive()  # the welcome: from now on the shard can reach us
        threading.Thread(target=self._listen, args=(connection, first), daemon=True).start()

    def call(self, call: Call, answered: Heard) -> None:
        arrays = Arrays()
        payload = arrays.payload(call.payload)
        extra = [arrays.add(array) for array in call.extra]
        frame = write_frame(call.kind, [call.what, payload, extra], arrays)
        if self._connection is not None:
            with self._calling:
                self._waiting.append(answered)
                self._connection.send(frame)

    def _listen(self, connection: UnixConnection, frames: Iterator[Frame] | None) -> None:
        try:
            while frames is not None:
                for frame in frames:
                    self._came(frame)
                frames = connection.receive()
        except Exception as error:  # a bad frame, or an error of ours: the run ends with it
            self._delivered(error)
        finally:
            connection.finish()

    def _came(self, frame: Frame) -> None:
        if frame.kind == "welcome":
            return
        if frame.kind == "deliver":
            self._delivered(frame.packed())
            return
        heard = self._waiting.popleft() if self._waiting else self._delivered
        heard(_error(*frame.what) if frame.kind == "error" else frame.packed())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _error(name: str, message: str) -> Exception:
    if name == Refused.__name__:
        return Refused(message)
    return (
        ValueError(message) if name == ValueError.__name__ else RuntimeError(f"{name}: {message}")
    )
