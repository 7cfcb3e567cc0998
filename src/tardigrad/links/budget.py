"""A fixed bandwidth, spent on the tensors whose gradients deviate most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tardigrad.core.checks import one_of, positive, require
from tardigrad.core.keys import key, uniform
from tardigrad.links.codec import Codec
from tardigrad.links.identity import AS_THEY_ARE, Identity
from tardigrad.links.link import ON_DROP, Gate, Link, OnDrop

Direction = Literal["pull", "push", "both"]
LEAST = 0.01
"""Of the even frequency."""


@dataclass(frozen=True)
class Budget(Link):
    """Spend `bytes_per_update` where the gradient's deviation is largest.

    Shard s, of b_s bytes and deviation v̄_s (as the worker last heard it), is sent with frequency

        p_s = min(1, λ v̄_s),  λ such that Σ_s b_s p_s = bytes_per_update.

    but none more seldom than a hundredth of the even frequency bytes_per_update / Σ_s b_s, which
    may take a hundredth of the budget on top: a shard that does not deviate beside the others would
    never be sent, and a run whose pushes are budgeted would never end (**choice**).

    With each tensor a shard of its own (`shards="tensor"`) the tensors share the bandwidth; with
    one shard it is a fixed rate. Sending is by credit, not at random: each opportunity adds p_s to
    what the pair of worker and shard has saved, and a whole 1 sends it. So after n opportunities
    each pair's spending is within one slice of its due, and traffic is even. The first credit is
    a keyed uniform draw, so that workers do not all send together.

    Args:
        bytes_per_update: bytes per round trip of one worker, all shards together, in the budgeted
            direction (in both together for "both", half each).
        direction: which direction is budgeted; the other crosses whole.
        on_drop: what becomes of a gradient that is not sent, as in `BandwidthAware`.
        codec: in which form gradients are pushed, where it is replies that are budgeted.

    One of the two extensions that Odena 2016 proposes, section 5, and leaves open how; the formula
    is a **choice**: frequency in proportion to the deviation.
    """

    unaveraged: ClassVar[str] = 'on_drop="reapply"'

    reads_deviation: ClassVar[bool] = True

    bytes_per_update: float
    direction: Direction = "pull"
    on_drop: OnDrop = "average"
    codec: Codec = AS_THEY_ARE

    def __post_init__(self) -> None:
        positive("bytes_per_update", self.bytes_per_update)
        one_of("direction", self.direction, ("pull", "push", "both"))
        one_of("on_drop", self.on_drop, ON_DROP)
        require(
            self.direction == "pull" or isinstance(self.codec, Identity),
            f"direction = {self.direction!r} budgets gradients by the bytes of whole slices, which "
            f'{type(self.codec).__name__} does not send: use direction="pull", or no codec',
        )

    @property
    def withholds_pushes(self) -> bool:
        return self.direction != "pull"

    def realise(self, seed: int, shard_bytes: Sequence[int]) -> Gate:
        return _CreditGate(self, seed, shard_bytes)


class _CreditGate(Gate):
    def __init__(self, link: Budget, seed: int, shard_bytes: Sequence[int]) -> None:
        self.seed = seed
        self.shard_bytes = shard_bytes
        self.bytes = link.bytes_per_update / (2 if link.direction == "both" else 1)
        self._least = min(1.0, LEAST * self.bytes / sum(shard_bytes))
        self.budgeted = {"push", "pull"} if link.direction == "both" else {link.direction}
        self._credit: dict[tuple[str, int, int], float] = {}

    def push(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        return self._spend("push", worker, shard, heard)

    def pull(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        return self._spend("pull", worker, shard, heard)

    def _spend(self, direction: str, worker: int, shard: int, heard: Sequence[float]) -> bool:
        if direction not in self.budgeted:
            return True
        account = (direction, worker, shard)
        credit = self._credit.get(account)
        if credit is None:
            credit = float(uniform(key(self.seed, f"link {direction}", worker, shard), 0))
        frequency = frequencies(heard, self.shard_bytes, self.bytes)[shard]
        credit += max(frequency, self._least)
        sends = credit >= 1
        self._credit[account] = credit - 1 if sends else credit
        return sends


def frequencies(deviation: Sequence[float], sizes: Sequence[int], budget: float) -> list[float]:
    """min(1, λ v̄_s) with Σ sizes · min(1, λ v̄_s) = budget; all 1 where the budget covers all.

    Shards that reach 1 are paid for first, in order of falling deviation; the rest share what is
    left in proportion to their deviation.
    """
    out = [0.0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda s: -deviation[s])
    weights = [deviation[s] * sizes[s] for s in order]
    left = budget
    for place, shard in enumerate(order):
        rest, weight = order[place:], sum(weights[place:])
        if weight <= 0:  # nothing else deviates at all: the rest share evenly
            share = min(1.0, left / sum(sizes[s] for s in rest))
            return [share if s in rest else out[s] for s in range(len(sizes))]
        if left * deviation[shard] < weight:
            return [
                left / weight * deviation[s] if s in rest else out[s] for s in range(len(sizes))
            ]
        out[shard] = 1.0
        left -= sizes[shard]
    return out
