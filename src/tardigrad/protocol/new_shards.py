"""What others are told of a shard's process that has just been made."""

from tardigrad.protocol.channels import ShardBeginning
from tardigrad.protocol.messages import Reinstated
from tardigrad.protocol.shard_session import ShardSession


def reinstated(session: ShardSession, epoch: int) -> Reinstated:
    """What other shards are told of the process of this epoch."""
    newest = {
        worker: max((r.version for r in channel.kept if r.carries), default=-1)
        for worker, channel in session.channels.items()
    }
    return Reinstated(session.shard, epoch, session.rows_given, tuple(newest.items()))


def beginnings(session: ShardSession, epoch: int) -> dict[int, ShardBeginning]:
    """What workers are told of the process of this epoch."""
    return {
        worker: ShardBeginning(epoch, session.version, c.life, c.number, c.sequence)
        for worker, c in session.channels.items()
    }
