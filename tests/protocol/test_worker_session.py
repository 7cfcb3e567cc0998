"""A worker's session, event by event."""

from collections.abc import Sequence

import tardigrad as tg
from tardigrad.policies import Policy, Request
from tardigrad.policies.machine import PullAll, PullHalf, WorkerCommand
from tardigrad.protocol.channels import ShardBeginning
from tardigrad.protocol.messages import (
    NO_ROW,
    Confirmation,
    FromShard,
    Hello,
    PushHeader,
    Released,
    RowRequest,
    VersionRequest,
)
from tardigrad.protocol.worker_outputs import Compute, Discard, Forget, Send, WorkerOutput
from tardigrad.protocol.worker_session import CONFIRM, WorkerSession, WorkerStart

EPOCH = 3


def made(
    policy: Policy | None = None,
    shards: int = 2,
    updates: int = 100,
    start: WorkerStart | None = None,
) -> WorkerSession:
    """Worker 0, which begins at version 0 with row 0 unless it is said otherwise."""
    new = WorkerStart(0, 0, 0, 0, (0,) * shards, (EPOCH,) * shards)
    return WorkerSession(policy or tg.Sync(), shards, updates, start or new)


def in_a_dead_ones_place(step: int, heard: int) -> WorkerStart:
    return WorkerStart(0, 1, step, NO_ROW, (heard,) * 2, (EPOCH,) * 2)


def tells(
    session: WorkerSession,
    shard: int,
    releases: Sequence[tuple[int, int]] = (),
    acked: int = -1,
    row: tuple[int, int] = (-1, NO_ROW),
    epoch: int = EPOCH,
    life: int | None = None,
) -> list[WorkerOutput]:
    """Shard says something: `releases` are (sequence, version), with their versions as payloads."""
    life = session.life if life is None else life
    said = tuple(Released(0, sequence, version) for sequence, version in releases)
    message = FromShard(shard, epoch, 0, life, acked, *row, said)
    return session.hear(message, [f"shard {shard}, {v}" for _, v in releases], 1.0)


def computes(outputs: Sequence[WorkerOutput]) -> list[Compute]:
    return [output for output in outputs if isinstance(output, Compute)]


def discarded(outputs: Sequence[WorkerOutput]) -> list[str]:
    return [output.payload for output in outputs if isinstance(output, Discard)]


def sent(outputs: Sequence[WorkerOutput]) -> list[tuple[int, type]]:
    return [
        (output.shard, type(output.message.body)) for output in outputs if isinstance(output, Send)
    ]


def finish(session: WorkerSession, finite: bool = True) -> list[WorkerOutput]:
    return session.computed(0.5, finite, 1.0, 1.0)


def test_a_round_from_start_to_start() -> None:
    session = made()
    (first,) = computes(session.begin(0.0))
    assert (first.row, first.step, first.read) == (0, 0, (0, 0))
    assert sent(finish(session)) == [(0, PushHeader), (1, PushHeader)]
    assert computes(tells(session, 0, [(1, 1)], acked=0, row=(1, 4))) == []
    (second,) = computes(tells(session, 1, [(1, 1)], acked=0))
    assert (second.row, second.step, second.read) == (4, 1, (1, 1))
    assert second.fresh == {0: "shard 0, 1", 1: "shard 1, 1"}


def test_releases_are_taken_in_order_and_once() -> None:
    session = made(tg.Partial(push=1, pull=1.0), shards=1)
    session.begin(0.0)
    assert tells(session, 0, [(2, 2)]) == []  # before its turn
    assert discarded(tells(session, 0, [(2, 2)])) == ["shard 0, 2"]
    out = tells(session, 0, [(1, 1)])
    assert discarded(out) == ["shard 0, 1"]  # a newer one has come with it
    assert discarded(tells(session, 0, [(1, 1), (2, 2)])) == ["shard 0, 1", "shard 0, 2"]


def test_what_another_process_of_a_shard_or_for_another_life_says_is_not_heard() -> None:
    session = made()
    session.begin(0.0)
    finish(session)
    for epoch, life in ((EPOCH - 1, 0), (EPOCH + 1, 0), (EPOCH, 1)):
        out = tells(session, 0, [(1, 1)], acked=0, epoch=epoch, life=life)
        assert discarded(out) == ["shard 0, 1"]
    assert session.awaits(0) == (0, 0)


def test_without_a_row_shard_0_is_asked_once_and_the_row_is_waited_for() -> None:
    session = made(start=in_a_dead_ones_place(step=7, heard=5))
    session.begin(0.0)
    tells(session, 0, [(6, 6)])
    out = tells(session, 1, [(6, 6)])
    assert sent(out) == [(0, RowRequest)]
    assert computes(tells(session, 0, row=(6, 20))) == []  # of a step that the dead one has pushed
    (compute,) = computes(tells(session, 0, row=(7, 23)))
    assert (compute.row, compute.step) == (23, 7)


def test_held_it_starts_nothing_and_is_quiet_when_all_is_acknowledged() -> None:
    session = made(shards=1)
    session.begin(0.0)
    session.hold()
    assert not session.status.quiet
    finish(session)
    assert not session.status.quiet
    assert computes(tells(session, 0, [(1, 1)], acked=0, row=(1, 2))) == []
    assert session.status.quiet
    (compute,) = computes(session.go_on(9.0))
    assert (compute.step, compute.start_s) == (1, 9.0)  # the wait is not part of the step


def test_stopped_it_starts_nothing_more() -> None:
    session = made(shards=1)
    session.begin(0.0)
    session.stop()
    finish(session)
    assert computes(tells(session, 0, [(1, 1)], acked=0, row=(1, 2))) == []
    assert session.status.quiet


def test_a_gradient_is_kept_until_every_shard_has_it_in_its_log() -> None:
    session = made()
    session.begin(0.0)
    finish(session)
    assert Forget(0) not in tells(session, 0, acked=0)
    assert [m for m in session.again(0) if not isinstance(m, Hello)] == []
    (message, hello) = session.again(1)
    assert isinstance(message.body, PushHeader) if not isinstance(message, Hello) else False
    assert hello == Hello(0, 0, 0)
    assert Forget(0) in tells(session, 1, acked=0)


def test_a_gradient_that_is_no_number_is_told_and_the_next_batch_tried_at_the_same_view() -> None:
    session = made()
    session.begin(0.0)
    out = finish(session, finite=False)
    assert sent(out) == [(0, PushHeader), (1, PushHeader), (0, RowRequest)]
    (again,) = computes(tells(session, 0, acked=0, row=(1, 2)))
    assert (again.row, again.step, again.read, again.fresh) == (2, 1, (0, 0), {})


def test_releases_that_nothing_is_pushed_after_are_confirmed() -> None:
    """Else a shard that lets only few be unheard would fall silent."""
    session = made(tg.Partial(push=1, pull=1.0), shards=1)
    session.begin(0.0)
    out = tells(session, 0, [(n, n) for n in range(1, CONFIRM + 1)])
    assert (0, Confirmation) in sent(out)


class AskingPull(PullAll):
    def finished(self, now_s: float) -> list[WorkerCommand]:
        return [*super().finished(now_s), Request(1, 2)]


class Asking(tg.Async):
    """Its workers ask shard 1 for more before they push."""

    def pull_half(self, shards: int) -> PullHalf:
        return AskingPull(shards)


def test_what_is_asked_for_before_a_push_does_not_give_its_view_up() -> None:
    """A shard forgets what a worker neither has nor computes at, and refuses a push of it then."""
    session = made(Asking())
    session.begin(0.0)
    tells(session, 1, [(1, 1)])  # while it computes
    outputs = session.computed(0.5, True, 1.0, 1.0)
    asked, pushed = (out.message for out in outputs if isinstance(out, Send) and out.shard == 1)
    assert isinstance(asked.body, VersionRequest)
    assert isinstance(pushed.body, PushHeader)
    assert (asked.at, asked.have, pushed.body.read) == (0, 1, (0, 0))


def test_nothing_is_started_once_every_shard_is_done() -> None:
    session = made(tg.Async(), updates=5)
    session.begin(0.0)
    finish(session)
    tells(session, 0, [(1, 5)], acked=0, row=(1, 2))
    assert computes(tells(session, 1, [(1, 5)], acked=0)) == []
    assert session.status.quiet


def test_a_shard_that_comes_back_with_all_it_said_is_gone_on_with() -> None:
    session = made()
    session.begin(0.0)
    finish(session)
    tells(session, 0, [(1, 1)], acked=0)
    assert session.replaced_shard(0, ShardBeginning(EPOCH + 1, 1, 0, number=0, sequence=1))
    assert session.replaced_shard(0, ShardBeginning(EPOCH + 1, 1, 0, number=0, sequence=1))  # again
    assert discarded(tells(session, 0, [(2, 2)], acked=0)) == ["shard 0, 2"]  # the old one
    assert session.again(1)[0] == session.again(1)[0]
    assert tells(session, 0, acked=0, epoch=EPOCH + 1) == []


def test_who_has_heard_what_a_shard_did_not_live_to_log_cannot_go_on() -> None:
    session = made()
    session.begin(0.0)
    finish(session)
    tells(session, 0, [(1, 1)], acked=0)
    good = ShardBeginning(EPOCH + 1, 1, 0, number=0, sequence=1)
    for lost in ({"sequence": 0}, {"number": -1}, {"version": 0}, {"life": 1}):
        assert not session.replaced_shard(0, good._replace(**lost))
    assert session.replaced_shard(0, good)


def pushed_fresh(outputs: list[WorkerOutput]) -> list[bool]:
    sent = [o.message.body for o in outputs if isinstance(o, Send)]
    return [body.fresh for body in sent if isinstance(body, PushHeader)]


def test_a_life_begins_anew_until_something_was_finite() -> None:
    session = made(shards=1)
    session.begin(0.0)
    assert pushed_fresh(session.computed(0.0, finite=False, end_s=1.0, now_s=1.0)) == [True]
    assert session.begins_anew
    tells(session, 0, row=(1, 7))
    assert pushed_fresh(session.computed(0.0, finite=True, end_s=2.0, now_s=2.0)) == [True]
    assert not session.begins_anew
    tells(session, 0, releases=[(1, 1)], row=(2, 8))
    assert pushed_fresh(session.computed(0.0, finite=True, end_s=3.0, now_s=3.0)) == [False]


def test_one_that_goes_on_with_a_state_does_not_begin_anew() -> None:
    start = WorkerStart(0, 1, 0, 0, (0,), (EPOCH,), keeps=True)
    session = made(shards=1, start=start)
    session.begin(0.0)
    assert pushed_fresh(session.computed(0.0, finite=True, end_s=1.0, now_s=1.0)) == [False]
