"""A shard's session, event by event."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

import tardigrad as tg
from tardigrad.policies import Arrival, Policy, PushHalf, Release, SetTimer
from tardigrad.policies.machine import ShardCommand
from tardigrad.protocol.admission import Admission, Refused
from tardigrad.protocol.messages import (
    AFTER_END,
    Applied,
    Came,
    Completed,
    Confirmation,
    Decision,
    Dropped,
    Extended,
    Fenced,
    FromWorker,
    Joined,
    Left,
    PushHeader,
    Rang,
    Reinstated,
    Released,
    Replaced,
    RowGiven,
    RowRequest,
    TimerSet,
    VersionRequest,
    WorkerBody,
)
from tardigrad.protocol.shard_session import WINDOW, ShardSession


def made(
    policy: Policy | None = None, workers: int = 2, shards: int = 1, updates: int = 100
) -> ShardSession:
    return ShardSession(policy or tg.Async(), 0, shards, range(workers), updates)


def said(
    session: ShardSession, worker: int, body: WorkerBody, heard: int | None = None, at: int = 0
) -> FromWorker:
    """The next message of a worker, which has heard everything unless it is said."""
    channel = session.channels[worker]
    heard = channel.sequence if heard is None else heard
    return FromWorker(worker, channel.life, channel.number + 1, heard, at, at, body)


def header(session: ShardSession, worker: int, read: int | None = None, **more: Any) -> PushHeader:
    channel = session.channels[worker]
    read = channel.kept[-1].version if read is None else read
    step = channel.step + 1
    whole = (read, *[0] * (session.shards - 1))
    push = PushHeader(
        10 * worker + step, worker, step, 0, whole, (1,) * session.shards, 0.0, 1.0, 0.5, True
    )
    return push._replace(**more)


def take(session: ShardSession, message: FromWorker) -> list[Decision]:
    assert session.admit(message) is Admission.NEW
    return session.handle(Came(message), 1.0)


def push(session: ShardSession, worker: int, **more: Any) -> list[Decision]:
    sent = header(session, worker, **more)
    return take(session, said(session, worker, sent, at=sent.read[0]))


def released(decided: list[Decision]) -> list[int]:
    return [item.worker for item in decided if isinstance(item, Released)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"read": (3, 0)}, r"it says it read version 3, but .* version 0 and has sent it \[0\]"),
        ({"read": (-1, 0)}, "it says it read version -1"),
        ({"step": 4}, "worker 0, step 4, at shard 0: its next step is 0"),
    ],
)
def test_a_push_that_cannot_be_is_refused_by_name(changes: dict[str, Any], why: str) -> None:
    session = made(shards=2)
    with pytest.raises(Refused, match=why):
        session.admit(said(session, 0, header(session, 0)._replace(**changes)))
    assert session.version == 0
    push(session, 0)  # and it goes on
    assert session.version == 1


def test_messages_are_taken_once_in_order_and_of_the_life_that_counts() -> None:
    session = made()
    first = said(session, 0, header(session, 0))
    second = first._replace(number=1, body=VersionRequest(0))
    assert session.admit(second) is Admission.VOID  # before its turn
    assert session.admit(first._replace(life=1)) is Admission.VOID
    assert session.admit(first._replace(worker=7)) is Admission.VOID
    take(session, first)
    assert session.admit(first) is Admission.AGAIN
    assert session.version == 1
    session.handle(Replaced(0, 1), 0.0)
    assert session.admit(second) is Admission.VOID
    assert session.admit(second._replace(life=1, number=0)) is Admission.NEW


def test_a_shard_goes_on_to_answer_by_its_policy_after_its_last_version() -> None:
    """Whom it held back then is free when the slowest has pushed, has left, or has joined anew."""
    for event in ("push", "leave"):
        session = made(tg.StaleSynchronous(bound=0), updates=1)
        assert push(session, 0) == [Applied((0,), 1.0)]
        assert session.done
        if event == "push":
            assert released(push(session, 1)) == [0, 1]
        else:
            assert released(session.handle(Left(1), 0.0)) == [0]
            assert released(session.handle(Joined(2, 0), 0.0)) == [2]
            assert released(push(session, 2)) == []
            assert released(push(session, 0)) == [0, 2]
        assert session.version == 1
        assert not session.rows


def test_a_worker_that_hears_nothing_pins_few_versions_and_gets_the_newest_when_it_does() -> None:
    """Partial releases every version to everybody."""
    session = made(tg.Partial(push=1), updates=100)
    for version in range(10):
        push(session, 0, stamp=version)
    channel = session.channels[1]
    assert [r.version for r in channel.kept] == list(range(WINDOW))
    assert set(session.readers) == {*range(WINDOW), 9, 10}  # worker 0 computed at 9
    (newest,) = take(session, said(session, 1, Confirmation(), heard=WINDOW - 1, at=0))
    assert isinstance(newest, Released)
    assert (newest.worker, newest.version) == (1, 10)
    assert set(session.readers) == {0, WINDOW - 1, 9, 10}  # 1 is free


def test_views_of_a_fenced_process_count_once_its_successor_stands_by_them() -> None:
    session = made(shards=2)
    of_old = {"epochs": (1, 1), "read": (0, 5)}
    message = said(session, 0, header(session, 0)._replace(**of_old))  # type: ignore[arg-type]
    assert session.admit(message) is Admission.NEW
    session.handle(Fenced(1, 7), 0.0)
    assert session.admit(message) is Admission.VOID
    session.handle(Reinstated(1, 7, rows=0, released=((0, 4), (1, 6))), 0.0)
    assert session.admit(message) is Admission.VOID  # version 5 may be there, but not for worker 0
    kept = message._replace(body=header(session, 0)._replace(epochs=(1, 1), read=(0, 4)))
    assert session.admit(kept) is Admission.NEW
    session.handle(Fenced(1, 9), 0.0)
    assert session.admit(kept) is Admission.VOID
    # The synced part was shorter still.
    session.handle(Reinstated(1, 9, rows=0, released=((0, 3), (1, 6))), 0.0)
    assert session.admit(kept) is Admission.VOID
    of_new = kept._replace(body=header(session, 0)._replace(epochs=(1, 9), read=(0, 4)))
    assert session.admit(of_new) is Admission.NEW


def test_who_replaces_a_worker_hears_the_answer_to_its_last_push_again() -> None:
    """Though the dead one had confirmed it: it cannot have pushed what it computed at it."""
    session = made()
    push(session, 0)
    take(session, said(session, 0, Confirmation(), heard=1, at=1))
    assert session.end(0).heard == 1
    session.handle(Replaced(0, 1), 0.0)
    assert (session.end(0).step, session.end(0).heard) == (0, 0)
    answer = session.answer(1, 0, after=session.end(0).heard)
    assert [r.version for r in answer.releases] == [1]
    assert (answer.life, answer.acked) == (1, -1)


def test_what_a_completed_gradient_shows_to_be_heard_is_not_said_again() -> None:
    """Its worker had heard version 1 and pushed, and only another shard got that gradient."""
    session = made()
    push(session, 0)
    push(session, 1)
    session.handle(Replaced(0, 1), 0.0)
    assert session.end(0).heard == 0
    half = header(session, 0, read=1)
    assert Applied((half.row,), 1.0) in session.handle(Completed(half), 0.0)
    answer = session.answer(1, 0, after=session.end(0).heard)
    assert [r.version for r in answer.releases] == [3]


def test_a_gradient_that_is_no_number_is_dropped_and_its_worker_gets_another_row() -> None:
    session = made()
    decided = push(session, 0, finite=False)
    assert decided == [Dropped(0, "not finite"), RowGiven(0, 1, 2)]
    assert session.version == 0


def test_a_row_is_given_once_and_told_as_often_as_needed() -> None:
    session = made(workers=1)
    (_, _, given) = push(session, 0)
    assert given == RowGiven(0, 1, 1)
    assert take(session, said(session, 0, RowRequest(1))) == []
    for _ in range(2):
        answer = session.answer(1, 0, after=None)
        assert (answer.step, answer.row) == (1, 1)


def test_a_timer_is_part_of_the_state_until_it_rings() -> None:
    session = made(tg.Deadline(timeout_s=2.0))
    (timer,) = [d for d in push(session, 0) if isinstance(d, TimerSet)]
    assert session.timers == [(timer.token, 1.0 + timer.seconds)]
    session.handle(Rang(timer.token), 1.0 + timer.seconds)
    assert session.version == 1
    assert timer.token not in [token for token, _ in session.timers]


def test_two_sessions_fed_the_same_events_are_the_same() -> None:
    """Which is all that recovery rests on."""
    one, other = (made(tg.Partial(push=2, push_timeout_s=0.5), workers=3) for _ in range(2))
    for worker in (0, 1, 2, 0, 2, 1):
        message = said(one, worker, header(one, worker))
        assert take(one, message) == take(other, message)
    assert one.channels == other.channels
    assert (one.readers, one.rows, one.timers) == (other.readers, other.rows, other.timers)


def test_a_shard_that_is_extended_drops_what_came_after_its_end_and_goes_on() -> None:
    session = made(updates=2)
    push(session, 0)
    push(session, 1)
    assert session.done
    late = header(session, 0)
    assert released(take(session, said(session, 0, late, at=late.read[0]))) == [0]
    assert session.handle(Extended(4), 2.0) == [Dropped(late.row, AFTER_END)]
    assert not session.done
    assert any(isinstance(item, Applied) for item in push(session, 0))
    assert session.handle(Extended(6), 3.0) == []


class _Alarm(PushHalf):
    """Applies what has come when its timer runs out, which it sets at once for the next."""

    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        self.came: list[Arrival] = []

    def pushed(self, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        self.came.append(arrival)
        return [] if self.version else self.timer(0, now_s)

    def timer(self, token: int, now_s: float) -> list[ShardCommand]:
        came, self.came = self.came, []
        update = [self.apply(came)] if came else []
        return [*update, *(Release(one.worker) for one in came), SetTimer(1.0, token + 1)]


@dataclass(frozen=True)
class _Alarmed(Policy):
    def push_half(self, workers: Iterable[int]) -> PushHalf:
        return _Alarm(workers)


def test_a_timer_that_ran_out_after_the_end_runs_out_when_the_run_is_extended() -> None:
    """A policy may go by nothing else: it would wait for ever."""
    session = made(_Alarmed(), workers=1, updates=1)
    push(session, 0)
    assert session.done
    ((token, _),) = session.timers
    assert session.handle(Rang(token), 2.0) == []
    assert session.handle(Extended(3), 9.0) == [TimerSet(1.0, token + 1)]
    push(session, 0)
    ((token, _),) = session.timers
    assert any(isinstance(item, Applied) for item in session.handle(Rang(token), 10.0))


def test_a_worker_that_is_released_often_at_one_version_pins_it_once() -> None:
    """Malenia waits for worker 1, and worker 0 gives more and more meanwhile."""
    session = made(tg.Malenia(2))
    for _ in range(9):
        push(session, 0)
        assert len(session.channels[0].kept) <= 2
        assert not session.settled
    assert session.readers[0] <= 4
    assert session.version == 0
    push(session, 1)
    assert session.version == 1
    assert len(session.settled) == 10
