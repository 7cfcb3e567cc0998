"""Real timers: call back with a token when its time has come, on one thread for all."""

import heapq
import threading
import time
from collections.abc import Callable


class Timers:
    def __init__(self, ring: Callable[[int], None]) -> None:
        self._ring = ring
        self._heap: list[tuple[float, int, int]] = []
        self._added = 0
        self._closed = False
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, token: int) -> None:
        with self._wake:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._added += 1
            heapq.heappush(self._heap, (time.monotonic() + seconds, self._added, token))
            self._wake.notify()

    def close(self) -> None:
        """Nothing rings any more, except what is ringing already."""
        with self._wake:
            self._closed = True
            self._heap.clear()
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._heap and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                due = self._heap[0][0] - time.monotonic()
                if due > 0:
                    self._wake.wait(due)
                    continue
                _, _, token = heapq.heappop(self._heap)
            self._ring(token)
