"""Policies that interrupt workers: event by event, against plain loops, and in schedules."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import tardigrad as tg
from tardigrad.clusters import Absence, Network
from tardigrad.core.layout import Sharding
from tardigrad.engine.job import Job
from tardigrad.engine.worker_states import WorkerStates
from tardigrad.policies import Apply, Interrupt, Policy
from tardigrad.policies.machine import Arrival
from tardigrad.scheduling import traffic, validate
from tardigrad.scheduling.analysis import arrivals_s
from tests.policies.hand_fed_shard import Shard, dropped, releases
from tests.policies.interrupting_reference import (
    Course,
    Interrupted,
    RennalaReference,
    RingmasterReference,
)

RATE = 0.1
STEPS = 400


@dataclass(frozen=True)
class Given(tg.TimedCluster):
    """Step times as they are given."""

    workers: int = 1
    step_s: tuple[tuple[float, ...], ...] = ()

    def realise(self, seed: int) -> tg.StepTimes:
        return GivenTimes(np.array(self.step_s))


class GivenTimes(tg.StepTimes):
    def __init__(self, step_s: npt.NDArray[np.float64]) -> None:
        self.given = step_s

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> npt.NDArray[np.float64]:
        who, when = np.broadcast_arrays(np.asarray(workers), np.asarray(steps))
        return np.asarray(self.given[who, when % self.given.shape[1]])


def drawn(seed: int) -> tuple[npt.NDArray[np.float64], float]:
    """Step times of a few workers, some of them much slower, and a latency."""
    draw = np.random.default_rng(seed)
    speeds = draw.choice([1.0, 1.0, 3.0, 20.0], int(draw.integers(2, 7)))
    latency_s = float(draw.choice([0.0, 0.05, 0.6])) * draw.uniform(0.5, 1.5)
    return speeds[:, None] * draw.uniform(0.5, 1.5, (len(speeds), STEPS)), latency_s


def as_cluster(step_s: npt.NDArray[np.float64], latency_s: float) -> Given:
    network = Network(latency_s=latency_s) if latency_s else None
    return given(step_s.tolist(), network=network)


def given(step_s: Sequence[Sequence[float]], **more: Any) -> Given:
    return Given(workers=len(step_s), step_s=tuple(map(tuple, step_s)), **more)


def bowl() -> tg.FunctionTask:
    return tg.FunctionTask(torch.ones(3, dtype=torch.float64), lambda view, worker, step: view)


def check_same(made: tg.Schedule, expected: Course, shards: int, latency_s: float) -> None:
    steps = list(zip(made.worker.tolist(), made.step.tolist(), strict=True))
    for shard in range(shards):
        mine = np.flatnonzero(made.group_shard == shard).tolist()
        assert made.group_time_s[mine] == pytest.approx(expected.times_s, abs=1e-9)
        assert [[steps[row] for row in made.group(at)] for at in mine] == expected.rows
        drops = [
            steps[row]
            for row, at, reason in zip(
                made.drop_row.tolist(), made.drop_shard.tolist(), made.drop_reason, strict=True
            )
            if at == shard and made.reasons[reason] != "interrupted"
        ]
        assert drops == expected.dropped
    # Of those at the very end, headers were still on their way.
    until_s = expected.times_s[-1] - latency_s - 1e-9
    rows = np.flatnonzero(made.interrupted & (made.end_s < until_s))
    stopped = sorted(Interrupted(*steps[row], float(made.end_s[row])) for row in rows)
    known = sorted(one for one in expected.interrupted if one.time_s < until_s)
    assert [one[:2] for one in stopped] == [one[:2] for one in known]
    assert [one.time_s for one in stopped] == pytest.approx([o.time_s for o in known], abs=1e-9)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["ringmaster", "rennala"])
def test_the_event_loop_is_the_plain_loop(kind: str, seed: int, shards: int) -> None:
    step_s, latency_s = drawn(seed)
    size = 1 + seed % 7
    about = (step_s, latency_s, RATE)
    if kind == "ringmaster":
        policy: Policy = tg.Ringmaster(size, stop=True)
        course = RingmasterReference(size, *about).course(updates := 60)
    else:
        policy = tg.Rennala(size, stop=True)
        course = RennalaReference(size, *about).course(updates := 25)
    made = tg.schedule(policy, as_cluster(step_s, latency_s), updates, shards=shards)
    validate(made)
    check_same(made, course, shards, latency_s)
    run = tg.execute(made, bowl(), tg.rules.sgd(RATE), engine="exact")
    assert run.params.tolist() == pytest.approx([course.x] * 3, abs=1e-12)


def test_the_drawn_cases_interrupt_and_drop() -> None:
    """So that the comparison above sees both."""
    seen = {"interrupted": 0, "dropped": 0}
    for seed in range(12):
        course = RingmasterReference(1 + seed % 7, *drawn(seed), RATE).course(60)
        seen["interrupted"] += len(course.interrupted)
        seen["dropped"] += len(course.dropped)
    assert seen["interrupted"] > 50
    assert seen["dropped"] > 5


def test_ringmaster_interrupts_whose_delay_reaches_the_bound() -> None:
    shard = Shard(tg.Ringmaster(2, stop=True), 3)
    assert shard.push(0) == [Apply((0,)), *releases(0)]
    assert shard.push(0, read=1) == [
        Apply((1,)),
        *releases(0),
        Interrupt(1, 0),
        Interrupt(2, 0),
    ]
    assert shard.push(0, read=2) == [Apply((2,)), *releases(0)]  # not told again
    assert interrupted(shard, 1) == dropped(3, "interrupted", 1)
    assert shard.push(2, read=0) == dropped(4, "delay at bound", 2)  # it had not heard in time
    assert shard.push(0, read=3) == [Apply((5,)), *releases(0)]
    # 1 has computed at 3 since then, and 2 too.
    assert shard.push(0, read=4) == [Apply((6,)), *releases(0), Interrupt(1, 1), Interrupt(2, 1)]


def interrupted(shard: Shard, worker: int) -> list[Any]:
    arrival = Arrival(shard.rows, worker, shard.steps[worker], 0, 0)
    shard.rows += 1
    shard.steps[worker] += 1
    return shard.half.on_interrupted(arrival, 0.0)


def test_rennala_interrupts_the_rest_when_a_batch_is_full() -> None:
    shard = Shard(tg.Rennala(3, stop=True), 3)
    assert shard.push(1) == releases(1)
    assert shard.push(1) == releases(1)
    # 0 has pushed, 1 computes its third, 2 its first.
    assert shard.push(0) == [Apply((2, 0, 1)), *releases(0), Interrupt(1, 2), Interrupt(2, 0)]
    assert interrupted(shard, 1) == dropped(3, "interrupted", 1)
    assert shard.push(2) == dropped(4, "old version", 2)


def test_nobody_is_interrupted_who_waits_for_a_later_version() -> None:
    shard = Shard(tg.Rennala(2, stop=True), 3)
    assert shard.push(0) == releases(0)
    assert shard.half.on_request(0, 1, 0.0) == []  # other shards are there already
    assert shard.push(1) == [Apply((0, 1)), *releases(1), Interrupt(2, 0), *releases(0)]
    # From then on it computes at the version that it has asked for.
    assert shard.push(1, stamp=1) == releases(1)
    assert shard.push(1, stamp=1) == [Apply((2, 3)), *releases(1), Interrupt(0, 1)]


def test_who_left_is_not_interrupted_and_who_came_back_is_at_its_own_step() -> None:
    shard = Shard(tg.Ringmaster(1, stop=True), 3)
    assert shard.leave(2) == []
    assert shard.push(0) == [Apply((0,)), *releases(0), Interrupt(1, 0)]
    assert shard.half.on_join(2, 0.0, 1, step=7) == releases(2)
    assert shard.push(0, read=1) == [Apply((1,)), *releases(0), Interrupt(2, 7)]


def test_one_that_has_come_back_is_interrupted_again() -> None:
    times = tuple((s,) * 8 for s in (1.0, 1.01, 50.0))
    away = (Absence(2, 5.0, 10.0), Absence(2, 21.5, 22.0))
    cluster = given(times, absences=away)
    made = tg.schedule(tg.Ringmaster(4, stop=True), cluster, 60)
    validate(made)
    ends_s = made.end_s[made.interrupted & (made.worker == 2)]
    for since_s, until_s in ((0.0, 5.0), (10.0, 21.5), (22.0, 30.0)):
        assert ((ends_s > since_s) & (ends_s < until_s)).any(), since_s


def test_one_that_waits_for_other_shards_is_interrupted_when_it_starts() -> None:
    """Where one shard answers very late, what the other had answered is too old by then: computing
    at it would be in vain."""
    network = Network(latency_s=0.1, rare_probability=0.05, rare_delay_s=10.0)
    cluster = given([(s,) for s in (1.0, 1.1, 1.2, 1.3)], network=network)
    made = tg.schedule(tg.Ringmaster(4, stop=True), cluster, 150, shards=2)
    validate(made)
    rows = np.flatnonzero(made.interrupted)
    at_once = rows[made.end_s[rows] == made.start_s[rows]]
    assert len(at_once) > 3
    for row in at_once:  # one was so far ahead of what it had sent
        versions = [
            np.searchsorted(made.group_time_s[made.group_shard == shard], made.start_s[row])
            for shard in range(2)
        ]
        assert max(versions - made.read[row]) >= 4


SLOW = tuple((s,) * 4 for s in (1.0, 2.3, 7.15))
STOPPING: list[Policy] = [
    tg.Ringmaster(4, stop=True),
    tg.Rennala(4, stop=True),
    tg.RampUp(tg.Ringmaster(3, stop=True), updates=5),
]


@pytest.mark.parametrize("policy", STOPPING, ids=str)
def test_a_file_holds_it_and_no_closed_form_is_taken(policy: Policy, tmp_path: Path) -> None:
    made = tg.schedule(policy, given(SLOW), 40)
    assert made == tg.schedule(policy, given(SLOW), 40, bulk=False)
    assert made.interrupted.sum() > 3
    made.save(tmp_path / "schedule.safetensors")
    loaded = tg.Schedule.load(tmp_path / "schedule.safetensors")
    assert loaded == made
    assert loaded.digest == made.digest


def test_an_interrupted_worker_has_waited_for_nothing_and_pushed_no_bytes() -> None:
    made = tg.schedule(tg.Rennala(4, stop=True), given(SLOW), 30)
    assert made.waiting_s == pytest.approx([0.0, 0.0, 0.0])  # it computed until it was told
    copies = traffic(made, [8])
    stopped = int(made.interrupted.sum())
    assert stopped == 60
    assert copies.push.sent == len(made.group_rows) == 120
    assert copies.pull.sent == 120 + stopped
    assert np.isnan(arrivals_s(made)[made.interrupted]).all()


def test_an_order_without_a_clock_can_interrupt() -> None:
    made = tg.Schedule.from_order([0, 0, 1, 0], 2, tg.Ringmaster(2, stop=True))
    validate(made)
    # Worker 1's first is interrupted at the second update, and its second comes third.
    assert made.worker[made.interrupted].tolist() == [1]
    assert [(made.worker[r], made.step[r]) for r in made.group_rows] == [
        (0, 0),
        (0, 1),
        (1, 1),
        (0, 2),
    ]


class Counting(tg.FunctionTask):
    """Notes which batches were asked for."""

    def __init__(self) -> None:
        super().__init__(torch.ones(2, dtype=torch.float64), lambda view, worker, step: view)
        self.asked: list[tuple[int, int]] = []

    def gradient(self, params: torch.Tensor, turn: Any) -> Any:
        self.asked.append((turn.worker, turn.step))
        return super().gradient(params, turn)


@pytest.mark.parametrize("work", [None, tg.LocalSteps(2, tg.rules.adamw(0.01))], ids=["one", "own"])
def test_interrupted_rows_are_not_computed_and_have_used_up_their_batches(work: Any) -> None:
    made = tg.schedule(tg.Ringmaster(3, stop=True), given(SLOW), 30, batches=2 if work else 1)
    task = Counting()
    tg.execute(made, task, tg.rules.sgd(RATE), engine="exact", work=work)
    batches = 2 if work else 1
    stopped = [
        (int(made.worker[row]), int(made.step[row]) * batches + k)
        for row in np.flatnonzero(made.interrupted)
        for k in range(batches)
    ]
    assert len(stopped) > 3
    assert not set(stopped) & set(task.asked)
    applied = {(int(made.worker[row]), int(made.step[row]) * batches) for row in made.group_rows}
    assert applied <= set(task.asked)


def test_a_codec_need_not_take_back_what_was_interrupted() -> None:
    """With error feedback every row that is pushed is computed, also one that is dropped; those
    that were interrupted were never encoded."""
    task, policy = Counting(), tg.Ringmaster(3, stop=True)
    link = tg.Full(codec=tg.TopK(0.5))
    run = tg.simulate(
        task, tg.rules.sgd(RATE), policy=policy, cluster=given(SLOW), updates=30, link=link,
        engine="exact",
    )  # fmt: skip
    made = run.schedule
    steps = set(zip(made.worker[made.interrupted], made.step[made.interrupted], strict=True))
    assert len(steps) > 3
    assert not steps & set(task.asked)


def test_a_state_begins_anew_with_the_first_row_since_a_return_that_is_computed() -> None:
    away = (Absence(2, 5.0, 10.0),)
    quick, slow = [0.5], [50.0] * 30
    for before in range(20):  # until the second row since the return is quick again
        third = quick + slow[:before] + quick * 10
        cluster = given([(1.0,) * 31, (1.01,) * 31, (third * 4)[:31]], absences=away)
        made = tg.schedule(tg.Ringmaster(4, stop=True), cluster, 60)
        back = np.flatnonzero((made.worker == 2) & (made.start_s >= 10.0))[:2]
        if made.interrupted[back].tolist() == [True, False]:
            break
    assert made.interrupted[back].tolist() == [True, False]
    assert back[1] in made.group_rows
    work = tg.LocalSteps(1, tg.rules.adamw(0.01))
    job = Job(made, bowl(), tg.rules.sgd(RATE), Sharding.divide(bowl().layout), work=work)
    states = WorkerStates(job, np.unique(made.group_rows))
    assert states.fresh[back[1]]
    assert states.wanted[back].tolist() == [False, True]
    assert states.fresh[states.wanted & (made.worker == 2)].sum() == 2


def test_schedules_that_contradict_themselves_are_refused() -> None:
    good = tg.schedule(tg.Ringmaster(4, stop=True), given(SLOW), 30, shards=2)
    row = int(np.flatnonzero(good.interrupted)[0])
    rows = good.group_rows.copy()
    rows[-1] = row
    with pytest.raises(ValueError, match="applied that was interrupted"):
        validate(replace(good, group_rows=rows, drop_row=good.drop_row[:1], **first_drop(good)))
    ends_s = good.end_s.copy()
    ends_s[row] = np.nan
    with pytest.raises(ValueError, match="interrupted at no time"):
        validate(replace(good, end_s=ends_s))
    reasons = good.drop_reason.copy()
    reasons[good.drop_row == row] = [0, 1]
    with pytest.raises(ValueError, match="dropped as another"):
        validate(replace(good, drop_reason=reasons, reasons=("interrupted", "too late")))


def first_drop(s: tg.Schedule) -> dict[str, Any]:
    """Only the first shard's, so that the row is not dropped where it is applied."""
    assert s.drop_shard[0] == 0
    assert s.group_shard[-1] == 1
    return {
        name: getattr(s, name)[:1]
        for name in ("drop_shard", "drop_time_s", "drop_reason", "drop_after")
    }


@pytest.mark.parametrize("link", [tg.Every(pull=2), tg.Budget(100.0)], ids=str)
def test_links_that_hold_back_are_refused_by_name(link: tg.Link) -> None:
    name = type(link).__name__
    with pytest.raises(ValueError, match=f"Ringmaster interrupts workers .* {name} may hold"):
        tg.schedule(tg.Ringmaster(2, stop=True), tg.Gamma(workers=2), 10, link=link)


def test_partial_pulling_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"PartialPull around Rennala\(stop=True\)"):
        tg.PartialPull(tg.Rennala(2, stop=True), pull=0.5)
