"""A lock that goes with what it guards: copied or sent to another process, it is a new one."""

import threading
from contextlib import AbstractContextManager


class OneThread(AbstractContextManager[None]):
    """Around what one thread at a time may do; the same thread may do it within."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> "tuple[type[OneThread], tuple[()]]":
        return OneThread, ()
