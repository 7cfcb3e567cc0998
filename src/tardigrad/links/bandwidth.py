"""B-FASGD's link: send where the gradient's deviation is large."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tardigrad.core.checks import not_negative, one_of, positive
from tardigrad.core.keys import key, uniform
from tardigrad.links.codec import Codec
from tardigrad.links.identity import AS_THEY_ARE
from tardigrad.links.link import ON_DROP, Gate, Link, OnDrop


@dataclass(frozen=True)
class BandwidthAware(Link):
    """Transmit iff r < 1 / (1 + c / (v̄ + ε)), r uniform in (0, 1).

    v̄ is the mean over the shard's parameters of the rule's deviation (FASGD's v), as the worker
    last heard it: it rides on every reply, also on one without parameters, and is 1 before the
    first. c = 0 sends always; the larger c, and the smaller v̄, the less crosses. With each tensor
    a shard of its own (`shards="tensor"`) this is the paper's per-tensor form: the same decision
    per tensor with that tensor's own v̄.

    Args:
        c_push: c for gradients on their way to the server.
        c_pull: c for parameters on their way back.
        on_drop: "reapply" (the paper): the server applies the worker's last transmitted gradient
            again, with its old version; "average" (the paper's suggestion): the worker averages the
            gradient into its next push, which carries the newer view and version.
        eps: ε.
        codec: in which form gradients are pushed. With error feedback the worker adds what was not
            sent to its next push, whatever `on_drop` says.

    Choices:
        ε = 1e-4 (the paper gives none). The worker decides on a reply's parameters with the v̄ of
        the reply before it: it has no newer one when it asks. r is keyed by (seed, direction,
        worker, shard), the pair's opportunities being the positions.

    Odena 2016, "Faster Asynchronous SGD", eq. 9.
    """

    unaveraged: ClassVar[str] = 'on_drop="reapply"'

    reads_deviation: ClassVar[bool] = True

    c_push: float = 0.0
    c_pull: float = 0.0
    on_drop: OnDrop = "reapply"
    eps: float = 1e-4
    codec: Codec = AS_THEY_ARE

    def __post_init__(self) -> None:
        not_negative("c_push", self.c_push)
        not_negative("c_pull", self.c_pull)
        one_of("on_drop", self.on_drop, ON_DROP)
        positive("eps", self.eps)

    @property
    def withholds_pushes(self) -> bool:
        return self.c_push > 0

    def realise(self, seed: int, shard_bytes: Sequence[int]) -> Gate:
        return _DeviationGate(self, seed)


class _DeviationGate(Gate):
    def __init__(self, link: BandwidthAware, seed: int) -> None:
        self.link = link
        self._pushes = _Draws(seed, "link push")
        self._pulls = _Draws(seed, "link pull")

    def push(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        return self._passes(self._pushes.next(worker, shard), self.link.c_push, heard[shard])

    def pull(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        return self._passes(self._pulls.next(worker, shard), self.link.c_pull, heard[shard])

    def _passes(self, r: float, c: float, deviation: float) -> bool:
        return r < 1 / (1 + c / (deviation + self.link.eps))


class _Draws:
    """The uniform stream of each pair of worker and shard."""

    def __init__(self, seed: int, purpose: str) -> None:
        self.seed, self.purpose = seed, purpose
        self._streams: dict[tuple[int, int], int] = {}
        self._position: dict[tuple[int, int], int] = {}

    def next(self, worker: int, shard: int) -> float:
        pair = (worker, shard)
        if pair not in self._streams:
            self._streams[pair] = key(self.seed, self.purpose, *pair)
        position = self._position[pair] = self._position.get(pair, -1) + 1
        return float(uniform(self._streams[pair], position))
