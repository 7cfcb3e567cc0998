"""What others are told of a shard's new process: only what its log holds counts."""

import tardigrad as tg
from tardigrad.protocol.channels import ShardBeginning
from tardigrad.protocol.messages import Joined, Reinstated
from tardigrad.protocol.new_shards import LoggedShard, beginnings, reinstated
from tardigrad.protocol.shard_session import ShardSession


def test_what_recovery_adds_is_told_to_nobody() -> None:
    """The row and the release that a join brings may have the numbers of lost ones."""
    session = ShardSession(tg.Async(), 0, 1, range(2), 9)
    logged = LoggedShard.of(session)
    session.handle(Joined(2, 0), 1.0)
    assert session.rows_given == 3
    assert reinstated(0, logged, 7) == Reinstated(0, 7, 2, ((0, 0), (1, 0)))
    told = beginnings(session, logged, 7)
    assert told[0] == told[1] == ShardBeginning(7, version=0, life=0, number=-1, sequence=0)
    assert told[2] == ShardBeginning(7, version=0, life=0, number=-1, sequence=-1)


def test_what_a_log_holds_is_told() -> None:
    session = ShardSession(tg.Async(), 0, 1, range(1), 9)
    session.handle(Joined(1, 3), 1.0)
    logged = LoggedShard.of(session)
    assert reinstated(0, logged, 2).released == ((0, 0), (1, 0))
    assert beginnings(session, logged, 2)[1] == ShardBeginning(2, 0, 3, -1, 0)
