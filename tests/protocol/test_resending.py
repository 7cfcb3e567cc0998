"""When a worker says again what a shard may have missed."""

from itertools import pairwise

import tardigrad as tg
from tardigrad.protocol.messages import FromShard, Released
from tardigrad.protocol.resending import RESEND_S, Resending
from tardigrad.protocol.worker_session import WorkerSession, WorkerStart

SOON_S, LATE_S = RESEND_S


def working(shards: int = 1) -> WorkerSession:
    start = WorkerStart(0, 0, 0, 0, (0,) * shards, (1,) * shards)
    session = WorkerSession(tg.Sync(), shards, 100, start)
    session.begin(0.0)
    return session


def acknowledge(session: WorkerSession, shard: int, releases: tuple[Released, ...] = ()) -> None:
    session.hear(FromShard(shard, 1, 0, 0, 0, 1, 7, releases), [None] * len(releases), 0.0)


def said_again(session: WorkerSession, until_s: int, shards: int = 1) -> list[tuple[int, int]]:
    """(second, shard) of each time, looked for every second."""
    resending = Resending(session, shards)
    return [(now_s, shard) for now_s in range(until_s) for shard in resending.due(float(now_s))]


def test_while_a_gradient_is_computed_nothing_is_awaited() -> None:
    assert said_again(working(), 100) == []


def test_what_is_not_acknowledged_is_said_again_more_and_more_seldom() -> None:
    session = working()
    session.computed(0.5, True, 1.0, 1.0)
    times = [now_s for now_s, _ in said_again(session, 200)]
    assert times[:5] == [2, 6, 14, 30, 60]
    assert {later - earlier for earlier, later in pairwise(times[4:])} == {30}


def test_a_release_that_does_not_come_is_asked_for_although_all_is_acknowledged() -> None:
    """It may have been lost with the shard's process, whose successor has logged it."""
    session = working(shards=2)
    session.computed(0.5, True, 1.0, 1.0)
    acknowledge(session, 0, (Released(0, 1, 1),))
    acknowledge(session, 1)
    assert (2, 1) in said_again(session, 4, shards=2)


def test_whoever_is_heard_is_asked_soon_again() -> None:
    session = working()
    session.computed(0.5, True, 1.0, 1.0)
    resending = Resending(session, 1)
    for now_s in range(0, 40, 2):
        resending.due(float(now_s))
    resending.heard(0)
    assert resending.due(40.0) == [0]


def test_a_worker_that_was_stopped_awaits_nothing_once_all_is_acknowledged() -> None:
    session = working()
    session.stop()
    session.computed(0.5, True, 1.0, 1.0)
    assert said_again(session, 4) == [(2, 0)]
    acknowledge(session, 0)
    assert said_again(session, 100) == []
