"""A link at a shard: what it believes of pushes, and what a worker's next process gets to hear."""

import pytest

import tardigrad as tg
from tardigrad.links import Link
from tardigrad.protocol.admission import Refused
from tardigrad.protocol.gates import ShardGate, WorkerGate
from tardigrad.protocol.log import LogEntry, read_log, write_entry
from tardigrad.protocol.messages import (
    Came,
    Completed,
    Dropped,
    FromWorker,
    PushHeader,
    Released,
    Replaced,
)
from tardigrad.protocol.shard_session import ShardSession

NEVER = tg.BandwidthAware(c_push=1e9, c_pull=1e9)
RARE = tg.Every(push=1000, pull=1000)
HEARD = (1.0, 1.0)


def session_of(link: Link) -> ShardSession:
    gate = link.realise(0, [8, 8])
    assert gate is not None
    return ShardSession(tg.Async(), 0, 2, range(2), 100, ShardGate(link, gate, 0, 2))


def push_of(step: int, read: int = 0, crosses: bool = True, **more: object) -> PushHeader:
    """Worker 0's; its row is ten times its step."""
    push = PushHeader(10 * step, 0, step, read, (read, 0), (1, 1), 0.0, 1.0, 0.5, True, crosses)
    return push._replace(**more)  # type: ignore[arg-type]


def tell(session: ShardSession, push: PushHeader) -> list[object]:
    worker, read = push.worker, push.read[0]
    channel = session.channels[worker]
    envelope = (worker, channel.life, channel.number + 1, channel.sequence, read, read)
    message = FromWorker(*envelope, push)
    session.admit(message)
    return list(session.handle(Came(message), 0.0))


def test_what_is_held_back_is_answered_and_waits() -> None:
    session = session_of(RARE)
    tell(session, push_of(0))
    assert session.version == 1
    assert tell(session, push_of(1, crosses=False)) != []
    tell(session, push_of(2, crosses=False))
    assert session.version == 1
    tell(session, push_of(3, merged=(10, 20)))
    assert session.version == 2


def test_the_last_one_that_crossed_is_applied_again() -> None:
    session = session_of(NEVER)
    tell(session, push_of(0, deviations=HEARD))
    tell(session, push_of(1, crosses=False, deviations=HEARD))
    assert session.version == 2
    assert session.may_need(0)
    assert not session.may_need(10)


@pytest.mark.parametrize(
    ("link", "wrong", "message"),
    [
        (RARE, push_of(1, merged=(7,)), "merged with rows"),
        (RARE, push_of(1, crosses=False, merged=(0,)), "merged with rows"),
        (RARE, push_of(1, deviations=(1.0,)), "tells 1 deviations of 2 shards"),
        (NEVER, push_of(1), "tells 0 deviations of 2 shards"),
    ],
)
def test_pushes_that_no_worker_sends_are_refused(
    link: Link, wrong: PushHeader, message: str
) -> None:
    session = session_of(link)
    tell(session, push_of(0, deviations=HEARD if link is NEVER else ()))
    with pytest.raises(Refused, match=message):
        tell(session, wrong)


def test_a_first_push_that_is_held_back_is_refused() -> None:
    with pytest.raises(Refused, match="none has come before"):
        tell(session_of(RARE), push_of(0, crosses=False))


def test_without_a_link_nothing_is_held_back() -> None:
    session = ShardSession(tg.Async(), 0, 2, range(2), 100)
    with pytest.raises(Refused, match="this run has no link"):
        tell(session, push_of(0, crosses=False))


def test_a_new_life_hears_one_release_that_carries_numbers() -> None:
    session = session_of(RARE)
    tell(session, push_of(0))
    tell(session, push_of(1, crosses=False))
    dropped, released = session.handle(Replaced(0, 1), 0.0)
    assert dropped == Dropped(10, "unsent")
    assert released == Released(0, 3, 1, carries=True)
    assert session.end(0).heard == 2
    assert session.answer(1, 0, session.end(0).heard).releases == (released,)


def test_the_answer_to_a_completed_push_is_all_there_is_to_hear() -> None:
    session = session_of(RARE)
    tell(session, push_of(0))
    session.handle(Replaced(0, 1), 0.0)
    decided = session.handle(Completed(push_of(1)), 0.0)
    (released,) = [item for item in decided if isinstance(item, Released)]
    assert released.carries
    assert session.answer(1, 0, session.end(0).heard).releases == (released,)


def test_completed_pushes_pin_no_versions() -> None:
    """A shard that was away may be given many; nobody will read the answers but the last."""
    session = session_of(RARE)
    tell(session, push_of(0))
    session.handle(Replaced(0, 1), 0.0)
    for step in range(1, 20):
        session.handle(Completed(push_of(step)), 0.0)
    assert session.version == 20
    assert len(session.channels[0].kept) <= 3
    assert sum(session.readers.values()) <= 3 + 1  # of the other worker


def test_lives_that_say_nothing_pin_few_versions() -> None:
    """Each is sent one to compute at; what lives before it had pushed has come to all shards."""
    session = session_of(RARE)
    tell(session, push_of(0))
    for life in range(1, 20):
        session.handle(Replaced(0, life, settled=life - 1), 0.0)
        assert len(session.channels[0].kept) <= 3
        tell(session, push_of(life - 1, worker=1, row=1000 + life))  # so that versions differ
    assert session.version == 20
    assert len(session.readers) <= 3 + 3


def test_a_life_that_nobody_settled_can_be_completed() -> None:
    """Its driver died before, and the next one begins another life first."""
    session = session_of(tg.Every(push=1000, pull=1))
    tell(session, push_of(0))
    for life in range(1, 6):
        session.handle(Replaced(0, life, settled=0), 0.0)
    session.handle(Completed(push_of(1, read=1)), 0.0)
    assert session.version == 2


def test_what_later_completed_pushes_were_computed_at_is_kept() -> None:
    """Of two gradients that only other shards have, the second was computed at a newer version."""
    session = session_of(tg.Every(push=1000, pull=1))
    tell(session, push_of(0))
    tell(session, push_of(1, crosses=False))
    session.handle(Replaced(0, 1), 0.0)
    session.handle(Completed(push_of(2)), 0.0)
    assert 1 in session.readers
    session.handle(Completed(push_of(3, read=1)), 0.0)
    assert session.version == 3


def test_a_completed_push_that_is_not_finite_leaves_something_to_hear() -> None:
    session = session_of(RARE)
    tell(session, push_of(0))
    (again,) = session.handle(Replaced(0, 1), 0.0)
    session.handle(Completed(push_of(1, finite=False)), 0.0)
    assert session.answer(1, 0, session.end(0).heard).releases == (again,)


def test_a_worker_that_has_not_pushed_begins_at_version_0() -> None:
    session = session_of(RARE)
    assert session.handle(Replaced(0, 1), 0.0) == []
    assert session.channels[0].kept == [Released(0, 0, 0)]


def test_a_gate_at_a_worker_sends_the_first_and_merges_the_rest() -> None:
    link = tg.Every(push=3)
    gate = link.realise(0, [8])
    assert gate is not None
    worker = WorkerGate(link, gate, 0, 1)
    sent = [worker.push(push_of(step), 0) for step in range(5)]
    assert [push.crosses for push in sent] == [True, False, False, True, False]
    assert sent[3].merged == (10, 20)
    assert worker.unsent() == {40}


@pytest.mark.parametrize("deviations", [(), (0.1, 1 / 3)])
def test_what_links_decide_is_in_the_log(deviations: tuple[float, ...]) -> None:
    push = push_of(3, merged=(10, 20), deviations=deviations)
    decided = [Released(0, 1, 1, carries=False), Released(1, 1, 1)]
    entry = LogEntry(Came(FromWorker(0, 0, 1, 1, 0, 0, push)), 0.5, list(decided), deviations)
    assert read_log(write_entry(entry), "log").entries == [entry]


def test_a_run_without_links_pays_nothing_in_the_log() -> None:
    entry = LogEntry(Came(FromWorker(0, 0, 1, 1, 0, 0, push_of(3))), 0.5, [Released(0, 1, 1)])
    line = write_entry(entry)
    assert line.endswith(b'0.5,true,0.5,[["release",0,1,1]]]\n')
