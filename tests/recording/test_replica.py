"""A shard's numbers, as they follow from what comes to it."""

from unittest.mock import patch

import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.layout import Sharding
from tardigrad.protocol.messages import Came, FromWorker, PushHeader
from tardigrad.protocol.shard_session import ShardSession
from tardigrad.recording.replica import Decided, ShardReplica
from tardigrad.recording.setup import RunSetup

TASK = tg.FunctionTask(torch.ones(3), lambda view, worker, step: view)


def push(replica: ShardReplica, worker: int, row: int) -> Decided:
    channel = replica.session.channels[worker]
    step, heard = channel.step + 1, channel.sequence
    header = PushHeader(row, worker, step, 0, (0,), (1,), 0.0, 1.0, 0.5, True)
    replica.arrive(header, torch.ones(3), ())
    message = FromWorker(worker, channel.life, channel.number + 1, heard, 0, 0, header)
    decided = replica.decide(Came(message), 1.0)
    replica.carry_out(decided)
    return decided


def test_what_an_event_costs_does_not_grow_with_what_is_gathered() -> None:
    """Malenia waits for a worker, which may be dead: the others' may come to thousands."""
    sharding = Sharding.divide(TASK.layout)
    setup = RunSetup(TASK, rules.sgd(0.1), tg.Malenia(2), sharding, workers=2, updates=5)
    replica = ShardReplica(setup, 0)
    asked: list[int] = []
    may_need = ShardSession.may_need

    def counted(self: ShardSession, row: int) -> bool:
        asked.append(row)
        return may_need(self, row)

    with patch.object(ShardSession, "may_need", counted):
        for row in range(1, 40):
            asked.clear()
            assert push(replica, 0, row).headers.keys() == {row}
            assert len(asked) == 1
            assert len(replica.pending) == row
    assert push(replica, 1, 0).headers.keys() == set(range(40))
    assert replica.shard.version == 1
    assert not replica.pending
    assert sorted(replica.consumed) == list(range(40))
