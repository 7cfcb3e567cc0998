"""Interrupts between a shard's session and a worker's, event by event."""

import math
from collections.abc import Sequence
from typing import Any

import tardigrad as tg
from tardigrad.protocol.admission import Admission
from tardigrad.protocol.messages import (
    NO_ROW,
    NO_STEP,
    Applied,
    Came,
    Completed,
    Decision,
    Dropped,
    FromShard,
    FromWorker,
    PushHeader,
    Released,
    Replaced,
    RowGiven,
    WorkerInterrupted,
)
from tardigrad.protocol.shard_session import ShardSession
from tardigrad.protocol.worker_outputs import Compute, Send, StopComputing, WorkerOutput
from tardigrad.protocol.worker_session import WorkerSession, WorkerStart

# At a shard.


def shard(bound: int = 2, workers: int = 3, updates: int = 100) -> ShardSession:
    return ShardSession(tg.Ringmaster(bound, stop=True), 0, 1, range(workers), updates)


def header(session: ShardSession, worker: int, **more: Any) -> PushHeader:
    channel = session.channels[worker]
    step, read = channel.step + 1, channel.kept[-1].version
    row = 100 * worker + step
    return PushHeader(row, worker, step, 0, (read,), (1,), 0.0, 1.0, 0.5, True)._replace(**more)


def push(session: ShardSession, worker: int, **more: Any) -> list[Decision]:
    channel, body = session.channels[worker], header(session, worker, **more)
    at = body.read[0]
    number, heard = channel.number + 1, channel.sequence
    message = FromWorker(worker, channel.life, number, heard, at, at, body)
    assert session.admit(message) is Admission.NEW
    return session.handle(Came(message), 1.0)


def test_a_shard_tells_who_is_to_stop_until_it_has_pushed() -> None:
    session = shard()
    push(session, 0)
    assert [d for d in push(session, 0) if isinstance(d, WorkerInterrupted)] == [
        WorkerInterrupted(1, 0),
        WorkerInterrupted(2, 0),
    ]
    assert [session.answer(1, worker, None).stop for worker in range(3)] == [NO_STEP, 0, 0]
    dropped, released, given = push(session, 1, interrupted=True, loss=math.nan)
    assert dropped == Dropped(100, "interrupted")
    assert (released, given) == (Released(1, 1, 2), RowGiven(1, 1, 5))
    push(session, 2)  # it has not heard of it in time
    assert [session.answer(1, worker, None).stop for worker in range(3)] == [NO_STEP] * 3


def test_another_life_of_the_worker_is_told_too() -> None:
    session = shard()
    push(session, 0)
    push(session, 0)
    session.handle(Replaced(1, 1), 2.0)
    assert session.answer(1, 1, None).stop == 0


def test_what_was_not_finite_is_a_step_that_the_policy_does_not_know_of() -> None:
    session = shard()
    push(session, 1, finite=False)
    push(session, 0)
    assert WorkerInterrupted(1, 1) in push(session, 0)


def test_a_dead_workers_interrupted_step_is_completed_elsewhere_as_such() -> None:
    session = shard()
    decided = session.handle(Completed(header(session, 1, interrupted=True)), 1.0)
    assert decided[0] == Dropped(100, "interrupted")
    assert [d.worker for d in decided if isinstance(d, Released)] == [1]


def test_after_its_last_update_a_shard_drops_and_answers_it() -> None:
    session = shard(updates=1)
    assert Applied((0,), 1.0) in push(session, 0)
    decided = push(session, 1, interrupted=True)
    assert decided[0] == Dropped(100, "interrupted")
    assert [d.worker for d in decided if isinstance(d, Released)] == [1]


# At a worker.


def worker(shards: int = 1) -> WorkerSession:
    start = WorkerStart(0, 0, 0, 0, (0,) * shards, (1,) * shards)
    session = WorkerSession(tg.Ringmaster(2, stop=True), shards, 100, start)
    session.begin(0.0)
    return session


def tells(
    session: WorkerSession,
    shard: int = 0,
    stop: int = NO_STEP,
    releases: Sequence[tuple[int, int]] = (),
    row: tuple[int, int] = (-1, NO_ROW),
    acked: int = -1,
    life: int = 0,
    sequence: int = 9,
) -> list[WorkerOutput]:
    said = tuple(Released(0, sequence, version) for sequence, version in releases)
    message = FromShard(shard, 1, 0, life, acked, *row, said, stop=stop, sequence=sequence)
    return session.hear(message, ["numbers"] * len(releases), 1.0)


def headers(outputs: Sequence[WorkerOutput]) -> list[PushHeader]:
    bodies = [output.message.body for output in outputs if isinstance(output, Send)]
    return [body for body in bodies if isinstance(body, PushHeader)]


def pushed(session: WorkerSession, finite: bool = True) -> list[PushHeader]:
    return headers(session.computed(0.5, finite, 3.0, 3.0))


def test_an_interrupted_step_is_pushed_to_all_shards_without_numbers() -> None:
    session = worker(shards=2)
    assert tells(session, 1, stop=0) == [StopComputing()]
    assert session.interrupted
    assert tells(session, 0, stop=0) == []  # said by the other one too
    sent = pushed(session)
    assert len(sent) == 2
    for one in sent:
        assert one.interrupted
        assert not one.has_numbers
        assert math.isnan(one.loss)
        assert (one.step, one.end_s) == (0, 3.0)
    # It waits for both, and goes on with its next step.
    tells(session, 0, releases=[(1, 3)], row=(1, 7), acked=0)
    (compute,) = (o for o in tells(session, 1, releases=[(1, 2)]) if isinstance(o, Compute))
    assert (compute.step, compute.row, compute.read) == (1, 7, (3, 2))
    assert not session.interrupted


def test_a_numberless_step_that_is_interrupted_is_not_tried_again() -> None:
    session = worker()
    tells(session, stop=0)
    (header,) = pushed(session, finite=False)
    assert header.interrupted
    assert header.finite
    assert session.status.step == 1


def test_what_was_told_once_holds_until_the_step_is_pushed() -> None:
    session = worker()
    tells(session, stop=0)
    tells(session)  # said before, and heard later
    assert session.interrupted
    assert pushed(session)[0].interrupted


def test_who_was_released_since_is_not_interrupted_by_a_late_message() -> None:
    """Messages overtake each other: this one was sent before the release that came."""
    session = worker()
    pushed(session)
    tells(session, releases=[(1, 1)], row=(1, 4), acked=0)
    assert tells(session, stop=1, sequence=0) == []
    assert not session.interrupted
    assert tells(session, stop=1, sequence=1) == [StopComputing()]


def test_late_repeated_and_foreign_interrupts_change_nothing() -> None:
    session = worker()
    assert not pushed(session)[0].interrupted
    assert tells(session, stop=0, releases=[(1, 1)], row=(1, 4), acked=0) != [StopComputing()]
    assert tells(session, stop=0) == []  # of a step that has ended
    assert tells(session, stop=1, life=3) == []  # for another life
    assert not session.interrupted
    assert not pushed(session)[0].interrupted


def test_a_step_that_waits_for_another_shard_is_interrupted_when_it_starts() -> None:
    session = worker(shards=2)
    pushed(session)
    tells(session, 0, releases=[(1, 1)], row=(1, 4))
    tells(session, 0, stop=1, row=(1, 4))
    assert not session.interrupted  # nothing is being computed
    (compute,) = (o for o in tells(session, 1, releases=[(1, 1)]) if isinstance(o, Compute))
    assert compute.step == 1
    assert session.interrupted  # whoever computes it sees that before it begins
    assert pushed(session)[0].interrupted


def test_a_later_release_makes_an_interrupt_void() -> None:
    session = worker(shards=2)
    pushed(session)
    tells(session, 0, releases=[(1, 1)], row=(1, 4))
    tells(session, 0, stop=1, row=(1, 4))
    tells(session, 0, releases=[(2, 3)], row=(1, 4))
    tells(session, 1, releases=[(1, 1)])
    assert not session.interrupted
