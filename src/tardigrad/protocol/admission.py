"""Whether a shard takes what a worker says."""

from enum import Enum

from tardigrad.protocol.messages import PushHeader, Reinstated


class Refused(ValueError):
    """A push that no correct worker sends."""


class Admission(Enum):
    NEW = "new"
    """To be handled as an event."""
    AGAIN = "again"
    """It is in the log: to be acknowledged again."""
    VOID = "void"
    """Of another life, before its turn, or at a view that does not count (yet): not answered."""


class Fences:
    """Which views count: those of a shard's process of today, and of one before it those that every
    process since has begun with."""

    def __init__(self, shards: int) -> None:
        self._lowest = [0] * shards
        """The epoch of each shard's process of today."""
        self._begun: list[list[Reinstated]] = [[] for _ in range(shards)]

    def fence(self, shard: int, epoch: int) -> None:
        self._lowest[shard] = max(epoch, self._lowest[shard])

    def reinstate(self, begun: Reinstated) -> None:
        self.fence(begun.shard, begun.epoch)
        if begun not in self._begun[begun.shard]:
            self._begun[begun.shard].append(begun)

    def admit(self, push: PushHeader) -> bool:
        """Whether shards stand by its view and its row."""
        for shard, (epoch, version) in enumerate(zip(push.epochs, push.read, strict=True)):
            if epoch < self._lowest[shard]:
                later = [begun for begun in self._begun[shard] if begun.epoch > epoch]
                there = any(begun.epoch == self._lowest[shard] for begun in later)
                released = [dict(begun.released).get(push.worker, -1) for begun in later]
                if not there or version > min(released):
                    return False
                if shard == 0 and push.row >= min(begun.rows for begun in later):
                    return False
        return True
