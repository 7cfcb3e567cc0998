"""The driver's decisions, one effect after the other: what is asked of whom, in which order."""

from typing import Any

import pytest

import tardigrad as tg
from tardigrad.protocol.calls import (
    Answer,
    AskShard,
    AskWorker,
    BeginWork,
    CallOutcome,
    CompleteRow,
    Dead,
    EndProcess,
    FenceShard,
    FinishCut,
    FinishShard,
    HoldSteps,
    JoinWorker,
    LeaveWorker,
    MakeShards,
    MakeWorkers,
    MeetShard,
    NextCut,
    OpenShard,
    Process,
    Recover,
    ReinstateShard,
    ReplaceWorker,
    SaveCut,
    TakeEpoch,
    TakeSnapshots,
)
from tardigrad.protocol.coordinator import Coordinator, MembershipChange
from tardigrad.protocol.run_processes import Patience, RunFailed
from tardigrad.protocol.shard_session import ShardSession
from tests.protocol.fake_cluster import (
    SHARD,
    SHARDS,
    UPDATES,
    WORKER,
    WORKERS,
    FakeCluster,
    FakeSnapshot,
    Recovered,
    Status,
    made,
    once,
)


def test_a_run_from_its_beginning_to_its_end() -> None:
    cluster = FakeCluster(made())
    assert cluster.run() == ["numbers", "numbers"]
    beginning = (TakeEpoch, Recover, MakeShards, ReinstateShard, OpenShard, MakeWorkers, BeginWork)
    found = list(dict.fromkeys(cluster.order(*beginning)))
    assert found == [kind.__name__ for kind in beginning]
    starts = [call.start for _, call in cluster.calls if isinstance(call, BeginWork)]
    assert [(s.worker, s.life, s.step, s.row, s.heard) for s in starts] == [
        (0, 0, 0, 0, (0, 0)),
        (1, 0, 0, 1, (0, 0)),
    ]
    assert cluster.told == []


def test_a_dead_shard_is_fenced_before_its_log_is_read_and_hears_workers_last() -> None:
    cluster = FakeCluster(made(), once(SHARD, AskShard, Dead(SHARD, "killed")))
    cluster.run()
    steps = (
        EndProcess,
        TakeEpoch,
        FenceShard,
        Recover,
        MakeShards,
        ReinstateShard,
        MeetShard,
        OpenShard,
    )
    found = cluster.order(*steps)
    assert found[found.index("EndProcess") :] == [kind.__name__ for kind in steps]
    assert cluster.asked(FenceShard) == [Process("shard", 0)]
    assert cluster.told == ["shard 1 died (killed), and is brought back"]
    assert cluster.coordinator.recoveries == ["shard 1"]


def test_who_cannot_go_on_with_a_new_shard_begins_another_life() -> None:
    def happens(process: Process, call: Any) -> CallOutcome | None:
        if isinstance(call, MeetShard):
            return Answer(process.number == 0)
        return died(process, call)

    died = once(SHARD, AskShard, Dead(SHARD, "killed"))
    cluster = FakeCluster(made(), happens)
    cluster.run()
    replaced = [call for _, call in cluster.calls if isinstance(call, ReplaceWorker)]
    assert set(replaced) == {ReplaceWorker(1, life=1)}


def test_of_a_worker_that_is_found_dead_while_a_shard_is_brought_back_it_is_told_too() -> None:
    """As when a host is lost with both."""
    happen = [
        once(SHARD, AskShard, Dead(SHARD, "its node died")),
        once(WORKER, MeetShard, Dead(WORKER, "it does not answer")),
    ]
    cluster = FakeCluster(made(), lambda *call: happen[0](*call) or happen[1](*call))
    cluster.run()
    assert cluster.told == [
        "shard 1 died (its node died), and is brought back",
        "worker 1 died (it does not answer), and is brought back",
    ]


def test_a_death_is_told_once_however_often_it_is_tried_to_mend() -> None:
    other = Process("shard", 0)
    happen = [
        once(SHARD, AskShard, Dead(SHARD, "killed")),
        once(other, FenceShard, Dead(other, "killed too")),
    ]
    cluster = FakeCluster(made(), lambda *call: happen[0](*call) or happen[1](*call))
    cluster.run()
    assert cluster.told == [
        "shard 1 died (killed), and is brought back",
        "shard 0 died (killed too), and is brought back",
    ]


def test_a_worker_that_does_not_answer_is_asked_seldom_and_replaced() -> None:
    """Nobody asks it for its work: under Sync all would wait for it without limit."""
    patience = Patience(poll_s=1.0, attend_s=3.0)
    cluster = FakeCluster(
        made(patience=patience), once(WORKER, AskWorker, Dead(WORKER, "it does not answer"))
    )
    cluster.run()
    assert cluster.told == ["worker 1 died (it does not answer), and is brought back"]
    assert cluster.asked(AskWorker).count(WORKER) in (2, 3)


def test_a_process_that_dies_again_and_again_ends_the_run_with_the_last_reason() -> None:
    deaths: list[str] = []

    def happens(process: Process, call: Any) -> CallOutcome | None:
        if process == SHARD and isinstance(call, AskShard):
            deaths.append(f"reason {len(deaths)}")
            return Dead(SHARD, deaths[-1])
        return None

    cluster = FakeCluster(made(), happens)
    with pytest.raises(
        RunFailed, match=r"shard 1 died 6 times .* version 0; the last time: reason 5"
    ):
        cluster.run()


def test_a_cut_waits_for_quiet_and_lets_everybody_go_on() -> None:
    busy = [Answer(Status(quiet=False))] * 3

    def happens(process: Process, call: Any) -> CallOutcome | None:
        return busy.pop() if isinstance(call, AskWorker) and busy else None

    cluster = FakeCluster(made(cut_every=9), happens)
    cluster.run()
    steps = (HoldSteps, AskWorker, NextCut, SaveCut, FinishCut)
    assert cluster.order(*steps) == [
        "HoldSteps", "AskWorker", "AskWorker", "AskWorker", "NextCut", "SaveCut", "FinishCut",
        "HoldSteps",
    ]  # fmt: skip
    held = [call.held for _, call in cluster.calls if isinstance(call, HoldSteps)]
    assert held == [True, True, False, False]


@pytest.mark.parametrize(
    ("waits", "what"),
    [
        ({"cut_every": 9}, "a cut (everybody waits with it; cut_every says how often)"),
        ({"changes": [MembershipChange(4, remove=1)]}, "the leave of worker 1"),
    ],
)
def test_what_waits_long_for_a_step_is_told(waits: dict[str, Any], what: str) -> None:
    busy = [Answer(Status(quiet=False))] * 14
    patience = Patience(poll_s=10.0, quiet_poll_s=10.0, attend_s=1e9, still_told_s=1e9)

    def happens(process: Process, call: Any) -> CallOutcome | None:
        return busy.pop() if (process, type(call)) == (WORKER, AskWorker) and busy else None

    cluster = FakeCluster(made(patience=patience, **waits), happens)
    cluster.run()
    assert cluster.told == [f"{what} has waited {at} s for a step of worker 1" for at in (60, 120)]


def test_a_run_in_which_nothing_happens_says_so_more_and_more_seldom() -> None:
    left, busy = list(range(32)), [0, 1, 1]

    def happens(process: Process, call: Any) -> CallOutcome | None:
        if isinstance(call, AskShard) and process == SHARD and left:
            left.pop()
            return Answer(Status(3))
        if isinstance(call, AskWorker) and busy:
            return Answer(Status(quiet=process.number != busy.pop()))
        return None

    coordinator = made(patience=Patience(poll_s=10.0, attend_s=1e9))
    cluster = FakeCluster(coordinator, happens)
    cluster.run()
    why = "no worker computes: each waits for a shard. What has been made is kept if you interrupt"
    who = "at work, or not heard by all shards: worker"
    assert cluster.told == [
        f"no update for 60 s, since version 3; {who} 1",
        f"no update for 120 s, since version 3; {who} 0",
        f"no update for 240 s, since version 3, and {why} the run",
    ]


def test_a_cut_in_which_a_shard_dies_is_not_finished_and_made_another_time() -> None:
    cluster = FakeCluster(made(cut_every=4), once(SHARD, SaveCut, Dead(SHARD, "killed")))
    cluster.run()
    found = cluster.order(SaveCut, FinishCut, MakeShards)
    assert found[1:5] == ["SaveCut", "MakeShards", "SaveCut", "FinishCut"]
    held = [
        call.held for who, call in cluster.calls if who == WORKER and isinstance(call, HoldSteps)
    ]
    assert held[:2] == [True, False]


def test_a_cut_does_not_wait_a_second_time_for_who_does_not_answer() -> None:
    """It is held, and never told to go on: that question would take as long as the first."""
    silent = once(WORKER, HoldSteps, Dead(WORKER, "it does not answer"))
    cluster = FakeCluster(made(cut_every=4), silent)
    cluster.run()
    asked = [(who.number, call.held) for who, call in cluster.calls if isinstance(call, HoldSteps)]
    assert asked[:5] == [(0, True), (1, True), (0, False), (0, True), (1, True)]
    assert cluster.told == ["worker 1 died (it does not answer), and is brought back"]


def test_a_cut_waits_for_who_died_while_another_left() -> None:
    """Worker 1 had pushed to all shards, and shard 1 lost that with its log's end. From a cut that
    was made before it is replaced, nobody would know that shard 1 has to get it."""

    def happens(process: Process, call: Any) -> CallOutcome | None:
        if isinstance(call, MeetShard):
            return Answer(process.number == 0)
        return died(process, call)

    died = once(SHARD, LeaveWorker, Dead(SHARD, "its host lost power"))
    coordinator = made(cut_every=4, changes=[MembershipChange(4, remove=0)])
    cluster = FakeCluster(coordinator, happens)
    cluster.run()
    found = [call for _, call in cluster.calls if isinstance(call, ReplaceWorker | SaveCut)]
    assert isinstance(found[0], ReplaceWorker)
    assert cluster.asked(SaveCut)


def test_workers_that_die_together_are_made_again_at_once() -> None:
    """A host takes many with it, and a start takes seconds."""
    everybody = [Process("worker", worker) for worker in range(WORKERS)]
    happen = [once(who, AskWorker, Dead(who, "its node died")) for who in everybody]
    cluster = FakeCluster(made(watches=True), lambda *call: happen[0](*call) or happen[1](*call))
    cluster.run()
    made_again = [effect.workers for effect in cluster.done if isinstance(effect, MakeWorkers)]
    assert made_again == [[0, 1], [0, 1]]
    starts = [call.start for _, call in cluster.calls if isinstance(call, BeginWork)]
    assert [(s.worker, s.life) for s in starts] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert cluster.coordinator.recoveries == ["worker 0", "worker 1"]


@pytest.mark.parametrize("halves", [0, 1])
def test_what_is_settled_is_told_with_the_next_life(halves: int) -> None:
    """After a shard's death by the logs alone: it may have lost its end, and with it that a
    gradient came to all."""
    dead = [Dead(WORKER, "killed")] * 3

    def happens(process: Process, call: Any) -> CallOutcome | None:
        if process == SHARD and isinstance(call, AskShard) and len(dead) == 1:
            return died(process, call)
        if process == WORKER and isinstance(call, AskWorker) and dead:
            return dead.pop()
        return None

    died = once(SHARD, AskShard, Dead(SHARD, "killed"))
    recovered = Recovered(pushed_to_some=[None] * halves)
    cluster = FakeCluster(made(patience=Patience(poll_s=1.0, attend_s=1.0)), happens, recovered)
    cluster.run()
    replaced = [call for _, call in cluster.calls if isinstance(call, ReplaceWorker)]
    assert list(dict.fromkeys(replaced)) == [
        ReplaceWorker(1, life=1, settled=0),
        ReplaceWorker(1, life=2, settled=1),
        ReplaceWorker(1, life=3, settled=0 if halves else 2),
    ]


def test_a_version_is_shown_once_when_all_shards_have_made_it() -> None:
    told = {0: [(), (FakeSnapshot(5),)], 1: [(), (), (FakeSnapshot(5),)]}

    def happens(process: Process, call: Any) -> CallOutcome | None:
        if isinstance(call, TakeSnapshots) and told[process.number]:
            return Answer(told[process.number].pop(0))
        return None

    cluster = FakeCluster(made(), happens)
    cluster.run()
    assert cluster.shown == [[5, 5]]
    done = [call.done for _, call in cluster.calls if isinstance(call, TakeSnapshots)]
    assert done[-1] == 5


def test_a_worker_without_room_for_another_leaves_and_the_last_one_ends_the_run() -> None:
    cluster = FakeCluster(made(), lambda process, call: None)

    def happens(process: Process, call: Any) -> CallOutcome | None:
        if isinstance(call, AskWorker) and process == WORKER and not cluster.no_room:
            cluster.no_room = True
            return Dead(WORKER, "killed")
        return None

    cluster.happens = happens
    cluster.coordinator.watches = True
    cluster.run()
    assert cluster.told[-1] == "worker 1 cannot be replaced (no room): the run goes on without it"
    assert cluster.asked(LeaveWorker) == [Process("shard", 0), Process("shard", 1)]

    alone = FakeCluster(Coordinator(SHARDS, 1, UPDATES, watches=True))
    alone.recovered.sessions = [
        ShardSession(tg.Async(), s, SHARDS, range(1), UPDATES) for s in range(SHARDS)
    ]

    def last(process: Process, call: Any) -> CallOutcome | None:
        if isinstance(call, AskWorker):
            alone.no_room = True
            return Dead(process, "killed")
        return None

    alone.happens = last
    with pytest.raises(RunFailed, match="worker 0, the last one, died and cannot be replaced"):
        alone.run()


def test_changes_that_an_earlier_driver_has_made_are_not_made_again() -> None:
    changes = [
        MembershipChange(2),
        MembershipChange(3, remove=0),
        MembershipChange(4, remove=1),
        MembershipChange(5),
    ]
    cluster = FakeCluster(made(changes=changes))
    cluster.recovered.made = (1, {0})
    cluster.run()
    joined = {call.worker for _, call in cluster.calls if isinstance(call, JoinWorker)}
    left = {call.worker for _, call in cluster.calls if isinstance(call, LeaveWorker)}
    assert (joined, left) == ({2}, {1})


def test_a_run_that_goes_on_begins_every_worker_in_another_life() -> None:
    cluster = FakeCluster(made())
    cluster.recovered.begun = True
    cluster.run()
    starts = [call.start for _, call in cluster.calls if isinstance(call, BeginWork)]
    assert [(start.worker, start.life) for start in starts] == [(0, 1), (1, 1)]
    assert cluster.asked(CompleteRow) == []


def test_a_run_that_goes_on_hears_nobody_of_an_earlier_life() -> None:
    """They may be alive still; what they say to one shard only would be unknown to the driver."""
    cluster = FakeCluster(made())
    cluster.recovered.begun = True
    cluster.run()
    steps = list(dict.fromkeys(cluster.order(ReinstateShard, ReplaceWorker, OpenShard, BeginWork)))
    assert steps == ["ReinstateShard", "ReplaceWorker", "OpenShard", "BeginWork"]


def test_a_run_that_is_to_end_early_ends_when_all_that_was_said_has_arrived() -> None:
    busy = [Answer(Status(quiet=False))] * 3
    coordinator = made()

    def happens(process: Process, call: Any) -> CallOutcome | None:
        if isinstance(call, AskShard) and cluster.version == 4:
            coordinator.ends_early = True
        if isinstance(call, AskWorker):
            return busy.pop() if busy else None
        return None

    cluster = FakeCluster(coordinator, happens)
    assert cluster.run() == ["numbers", "numbers"]
    assert cluster.version < UPDATES
    end = cluster.order(HoldSteps, AskWorker, FinishShard)
    assert end == ["HoldSteps", *["AskWorker"] * 3, "FinishShard"]
    held = [call for _, call in cluster.calls if isinstance(call, HoldSteps)]
    assert held == [HoldSteps(True)] * WORKERS  # and nobody goes on
    finishes = [call for _, call in cluster.calls if isinstance(call, FinishShard)]
    assert finishes == [FinishShard(closes=True)] * SHARDS


def test_who_dies_while_a_run_ends_early_is_brought_back_and_shards_are_opened_again() -> None:
    coordinator = made()
    coordinator.ends_early = True
    cluster = FakeCluster(coordinator, once(SHARD, FinishShard, Dead(SHARD, "killed")))
    assert cluster.run() == ["numbers", "numbers"]
    assert cluster.told == ["shard 1 died (killed), and is brought back"]
    end = cluster.order(OpenShard, HoldSteps, FinishShard)
    first = end.index("FinishShard")
    assert end[first + 1 :][-3:] == ["OpenShard", "HoldSteps", "FinishShard"]
    opened = cluster.asked(OpenShard)
    assert opened[-SHARDS:] == [Process("shard", shard) for shard in range(SHARDS)]
