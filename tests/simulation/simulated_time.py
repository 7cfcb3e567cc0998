"""Time that a scheduler owns: what happens next is a matter of the seed alone."""

import heapq
import random
from collections.abc import Callable


class Stuck(AssertionError):
    """Nothing can happen any more, or it takes too long."""


class SimulatedTime:
    """Things that are to happen, by time; ties in the order in which they were put."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.story: list[str] = []
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._put = 0

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        self._put += 1
        heapq.heappush(self._heap, (self.now_s + seconds, self._put, do))

    def tell(self, text: str) -> None:
        self.story.append(f"{self.now_s:9.3f}  {text}")

    def run(self, until: Callable[[], bool], limit_s: float) -> None:
        while not until():
            if not self._heap:
                raise Stuck("nothing is left to happen")
            self.now_s, _, do = heapq.heappop(self._heap)
            if self.now_s > limit_s:
                raise Stuck(f"not done after {limit_s:g} s")
            do()
