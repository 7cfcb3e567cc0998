"""The ends of the channels between a worker and a shard: what each knows of the other."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tardigrad.protocol.messages import NO_STEP, FromWorker, PushHeader, Released


@dataclass
class WorkerChannel:
    """What a shard knows of one worker."""

    life: int = 0
    number: int = -1
    """The last message of this life."""
    step: int = -1
    """The last step that came, in any life,"""
    last: PushHeader | None = None
    """and its header."""
    heard: int = -1
    sequence: int = -1
    """The last release."""
    answered_from: int = 0
    """Releases from here on were made after the last push."""
    life_from: int = 0
    """Releases from here on were made in this life, where a link is."""
    lives_from: dict[int, int] = field(default_factory=dict)
    """So of every life of which a gradient may have to be completed."""
    kept: list[Released] = field(default_factory=list)
    """Those it may still compute at, or has not confirmed."""
    waiting: bool = False
    """Whether it is to get the version of the moment as soon as it has heard enough."""
    stop: int = NO_STEP
    """The step that it is to stop computing, and has not pushed."""

    def take(self, first: int, end: int) -> list[Released]:
        """Those of `kept` from sequence `first` on and before `end`, which are kept no longer."""
        taken = [released for released in self.kept if first <= released.sequence < end]
        self.kept = [released for released in self.kept if released not in taken]
        return taken

    def settle(self, settled: int) -> list[Released]:
        """Releases that only lives before `settled` can have computed at, kept no longer."""
        self.lives_from[self.life] = self.life_from
        taken = self.take(0, min(self.lives_from.get(settled, 0), self.sequence))
        self.lives_from = {life: at for life, at in self.lives_from.items() if life >= settled}
        return taken


class ChannelEnd(NamedTuple):
    """A shard's end of a channel, for whoever takes a worker's place."""

    step: int
    heard: int
    last: PushHeader | None


class ShardBeginning(NamedTuple):
    """Where a shard's new process goes on, as far as one worker is concerned."""

    epoch: int
    version: int
    life: int
    """The worker's life that the shard knows of,"""
    number: int
    """the last of its messages that is in the log,"""
    sequence: int
    """and the last release to it."""


@dataclass
class ShardChannel:
    """What a worker knows of one shard."""

    epoch: int
    heard: int
    confirmed: int
    acked: int = -1
    number: int = -1
    unacked: list[FromWorker] = field(default_factory=list)
    early: dict[int, tuple[Released, Any, float]] = field(default_factory=dict)
    """Releases that came before their turn, by sequence, with payload and deviation."""
    have: int = 0
    """The version in the view. Policies go by what they are told of, which may not have come."""
    have_epoch: int = 0
    """Of the process that gave it."""
    newest: int = 0
    """The newest version it knows of."""
    stop: int = NO_STEP
    """The step that it is told to stop computing."""

    def pushes(self, row: int) -> bool:
        """Whether this gradient is in a push that is not acknowledged."""
        pushes = [m.body for m in self.unacked if isinstance(m.body, PushHeader)]
        return any(row == push.row or row in push.merged for push in pushes)
