"""A link of one's own: workers keep the initial parameters for a while."""

from collections.abc import Sequence
from dataclasses import dataclass

import tardigrad as tg


@dataclass(frozen=True)
class LateStart(tg.Link):
    """Every push crosses; a worker takes no parameters at its first `pulls` answers."""

    pulls: int = 2

    def realise(self, seed: int, shard_bytes: Sequence[int]) -> tg.Gate | None:
        return LateGate(self.pulls)


class LateGate(tg.Gate):
    def __init__(self, pulls: int) -> None:
        self.pulls = pulls
        self.answered: dict[tuple[int, int], int] = {}

    def push(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        return True

    def pull(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        self.answered[worker, shard] = self.answered.get((worker, shard), 0) + 1
        return self.answered[worker, shard] > self.pulls
