"""Only every k-th push and pull."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tardigrad.core.checks import count
from tardigrad.links.codec import Codec
from tardigrad.links.identity import AS_THEY_ARE
from tardigrad.links.link import Gate, Link


@dataclass(frozen=True)
class Every(Link):
    """Each worker sends every `push`-th gradient and takes parameters every `pull`-th time.

    It computes `pull` gradients at each view, the first ones at the initial parameters, and pushes
    its first gradient and every `push`-th after it. **choice**: the gradients in between are
    averaged into the next push (the paper accumulates them without saying how).

    Args:
        push: every how many gradients one is sent.
        pull: every how many answers parameters are taken.
        codec: in which form gradients are pushed. With error feedback those in between are added to
            the next push, not averaged.

    Dean et al. 2012, "Large Scale Distributed Deep Networks", section 4.1 and appendix.
    """

    unaveraged: ClassVar[str] = "push=1"

    push: int = 1
    pull: int = 1
    codec: Codec = AS_THEY_ARE

    def __post_init__(self) -> None:
        count("push", self.push)
        count("pull", self.pull)

    @property
    def withholds_pushes(self) -> bool:
        return self.push > 1

    def realise(self, seed: int, shard_bytes: Sequence[int]) -> Gate | None:
        return _EveryGate(self.push, self.pull)


class _EveryGate(Gate):
    def __init__(self, push: int, pull: int) -> None:
        self._push, self._pull = push, pull
        self._pushes: dict[tuple[int, int], int] = {}
        self._pulls: dict[tuple[int, int], int] = {}

    def push(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        number = self._pushes[worker, shard] = self._pushes.get((worker, shard), -1) + 1
        return number % self._push == 0

    def pull(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        number = self._pulls[worker, shard] = self._pulls.get((worker, shard), 0) + 1
        return number % self._pull == 0
