"""What others are told of a shard's process that has just been made."""

from collections.abc import Mapping
from typing import NamedTuple

from tardigrad.protocol.channels import ShardBeginning
from tardigrad.protocol.messages import Reinstated
from tardigrad.protocol.shard_session import ShardSession


class LoggedChannel(NamedTuple):
    life: int
    number: int
    """The last message that came,"""
    sequence: int
    """the last release,"""
    version: int
    """and the newest version that was released with its numbers; -1: none."""


class LoggedShard(NamedTuple):
    """How a shard stands by what its log holds, without what recovery adds to that. Rows, releases
    and versions of what was added have the numbers of lost ones, and are other."""

    version: int
    rows: int
    """How many it has given."""
    channels: Mapping[int, LoggedChannel]

    @staticmethod
    def of(session: ShardSession) -> "LoggedShard":
        channels = {
            worker: LoggedChannel(
                channel.life,
                channel.number,
                channel.sequence,
                max((r.version for r in channel.kept if r.carries), default=-1),
            )
            for worker, channel in session.channels.items()
        }
        return LoggedShard(session.version, session.rows_given, channels)


def reinstated(shard: int, logged: LoggedShard, epoch: int) -> Reinstated:
    """What other shards are told of the process of this epoch."""
    released = tuple((worker, known.version) for worker, known in logged.channels.items())
    return Reinstated(shard, epoch, logged.rows, released)


def beginnings(session: ShardSession, logged: LoggedShard, epoch: int) -> dict[int, ShardBeginning]:
    """What workers are told of the process of this epoch. Of one that has come by what was added,
    the log knows nothing: it goes on if it has heard nothing."""
    out = {}
    for worker, channel in session.channels.items():
        known = logged.channels.get(worker) or LoggedChannel(channel.life, -1, -1, -1)
        out[worker] = ShardBeginning(
            epoch, logged.version, known.life, known.number, known.sequence
        )
    return out
