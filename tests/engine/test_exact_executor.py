"""The exact executor on schedules written by hand: views, shards, scales, ends of runs."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.clusters import Absence
from tardigrad.core.layout import Layout, Sharding
from tardigrad.engine.exact import Exact
from tardigrad.engine.job import Job
from tardigrad.engine.shard import Arrived, Shard
from tardigrad.scheduling import Recorder
from tardigrad.tasks import Data, Split

LR = 0.1
START = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)


class Watched:
    """A gradient that remembers where it was asked: view·(1 + worker) + step, loss Σ view."""

    def __init__(self) -> None:
        self.views: dict[tuple[int, int], Tensor] = {}

    def __call__(self, view: Tensor, worker: int, step: int) -> tuple[Tensor, Tensor]:
        assert (worker, step) not in self.views, "a gradient is computed once"
        self.views[worker, step] = view.clone()
        return view.sum(), view * (1 + worker) + step

    def task(self) -> tg.FunctionTask:
        return tg.FunctionTask(START, self)


def by_hand(rows: Sequence[tuple[int, int, tuple[int, int]]], groups: Sequence[Any]) -> tg.Schedule:
    """Two workers, two shards; rows (worker, step, read), groups (shard, rows, scale)."""
    recorder = Recorder(workers=2, shards=2)
    for worker, step, read in rows:
        recorder.start(worker, step, 0, read, 0.0)
    for at, (shard, members, scale) in enumerate(groups):
        recorder.apply(shard, members, scale, float(at))
    return recorder.schedule()


def test_a_view_is_the_composite_of_what_was_read() -> None:
    """Shard 0 runs ahead of shard 1; a row may skip a shard altogether."""
    made = by_hand(
        [(0, 0, (0, 0)), (1, 0, (0, 0)), (0, 1, (1, 0)), (1, 1, (2, 1)), (0, 2, (1, 2))],
        [(0, [0], 1.0), (0, [1], 1.0), (1, [1], 1.0), (1, [2], 1.0), (0, [3], 1.0), (1, [4], 1.0)],
    )
    watched = Watched()
    run = tg.execute(made, watched.task(), tg.rules.sgd(LR), engine="exact")
    left, right = [START[:2]], [START[2:]]

    def grad(worker: int, step: int, a: int, b: int) -> Tensor:
        view = torch.cat([left[a], right[b]])
        assert torch.equal(watched.views[worker, step], view)
        return view * (1 + worker) + step

    first, second = grad(0, 0, 0, 0), grad(1, 0, 0, 0)
    left.append(left[-1] - LR * first[:2])
    left.append(left[-1] - LR * second[:2])
    right.append(right[-1] - LR * second[2:])
    third = grad(0, 1, 1, 0)
    right.append(right[-1] - LR * third[2:])
    left.append(left[-1] - LR * grad(1, 1, 2, 1)[:2])
    right.append(right[-1] - LR * grad(0, 2, 1, 2)[2:])
    assert torch.allclose(run.params, torch.cat([left[-1], right[-1]]), rtol=0, atol=1e-15)
    # Losses are those of shard 0's updates.
    expected = [watched.views[turn].sum().item() for turn in ((0, 0), (1, 0), (1, 1))]
    assert run.history.loss == expected


def test_a_row_that_is_applied_again_is_not_computed_again_and_grows_old() -> None:
    """What a link does that re-applies a worker's last gradient: delays 0, 1, 2."""
    recorder = Recorder(workers=1, shards=1)
    recorder.start(0, 0, 0, (0,), 0.0)
    for at in range(3):
        recorder.apply(0, [0], 1.0, float(at))
    made = recorder.schedule()
    assert made.delays.tolist() == [0, 1, 2]
    run = tg.execute(made, Watched().task(), tg.rules.staleness_aware(LR), engine="exact")
    expected = START - LR * START * (1 + 1 / 2 + 1 / 3)
    assert torch.allclose(run.params, expected, rtol=0, atol=1e-15)


def test_a_gradient_is_as_late_at_each_shard_as_that_shard_has_moved() -> None:
    """One row, read at (0, 0): applied at once by shard 0, after two updates by shard 1."""
    made = by_hand(
        [(0, 0, (0, 0)), (1, 0, (0, 0)), (1, 1, (0, 1))],
        [(0, [0], 1.0), (1, [1], 1.0), (1, [2], 1.0), (1, [0], 1.0)],
    )
    assert made.delays.tolist() == [0, 0, 0, 2]
    run = tg.execute(made, Watched().task(), tg.rules.staleness_aware(LR), engine="exact")
    right = START[2:] - LR * 2 * START[2:]
    right = right - LR * (2 * right + 1)
    right = right - LR / 3 * START[2:]
    expected = torch.cat([START[:2] - LR * START[:2], right])
    assert torch.allclose(run.params, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["sgd", "gap_aware", "dana"])
def test_a_policys_scale_multiplies_the_rate(name: str) -> None:
    """Linear scaling: at scale 3 every update is that of three times the rate."""
    make = tg.rules.RULES[name]

    def run(scale: float, lr: float) -> Tensor:
        recorder = Recorder(workers=2, shards=1)
        for step in range(6):
            recorder.start(step % 2, step // 2, 0, (max(0, step - 1),), 0.0)
            recorder.apply(0, [step], scale, float(step))
        task = Watched().task()
        return tg.execute(recorder.schedule(), task, make(lr), engine="exact").params

    assert torch.allclose(run(3.0, 0.02), run(1.0, 0.06), rtol=0, atol=1e-14)
    assert not torch.allclose(run(1.0, 0.02), run(1.0, 0.06))


@pytest.mark.parametrize("policy", [tg.Async(), tg.Async(wait=False), tg.Sync()], ids=repr)
def test_no_more_versions_live_than_workers_and_one(policy: Any) -> None:
    workers, shards = 5, 2
    cluster = tg.Gamma(workers=workers, heterogeneous=True)
    made = tg.schedule(policy, cluster, 200, shards=shards)
    task = tg.FunctionTask(START, lambda view, worker, step: view)
    job = Job(made, task, tg.rules.sgd(LR), Sharding.divide(task.layout, shards))
    execution = Exact(job)
    most = 0
    while execution.position < made.groups:
        execution.advance()
        most = max(most, execution.versions.held)
        # Between two shards' updates, version 0 not yet read by all: a resumed run frees as much.
        if execution.position in (3, 101):
            saved = execution.tensors(), execution.facts()
            execution = Exact(job)
            execution.restore(*saved)
    assert 0 < most <= (workers + 1) * shards
    # What is left was read by gradients on their way at the end, for a run that is extended.
    coming = set(range(made.rows)) - set(made.group_rows.tolist())
    left = {(shard, int(made.read[row, shard])) for row in coming for shard in range(shards)}
    assert execution.versions.held == len(left) <= workers * shards
    assert not execution.computed


def test_dana_forgets_a_worker_that_leaves() -> None:
    """Its buffer goes out of the sum that is sent; the others' stay."""
    shard = Shard(tg.rules.dana(LR, momentum=0.5), START, Layout.flat(4))
    grads = [torch.full((4,), 1.0 + w, dtype=torch.float64) for w in range(3)]
    for worker, grad in enumerate(grads):
        shard.apply([Arrived(worker, grad, START, 0)])
    shard.leave(1)
    shard.leave(7)  # never seen here: nothing to forget
    shard.apply([Arrived(0, grads[0], START, 0)])
    theta = START - LR * (grads[0] + grads[1] + grads[2] + 1.5 * grads[0])
    assert torch.allclose(shard.theta, theta, rtol=0, atol=1e-15)
    ahead = theta - LR * 0.5 * (1.5 * grads[0] + grads[2])
    assert torch.allclose(shard.sent, ahead, rtol=0, atol=1e-15)
    # It comes back as one who was never there.
    shard.join(1)
    shard.apply([Arrived(1, grads[1], START, 0)])
    assert torch.allclose(shard.theta, theta - LR * grads[1], rtol=0, atol=1e-15)
    ahead = shard.theta - LR * 0.5 * (1.5 * grads[0] + grads[1] + grads[2])
    assert torch.allclose(shard.sent, ahead, rtol=0, atol=1e-15)


def test_a_schedule_with_leavers_tells_the_rule() -> None:
    cluster = tg.Gamma(workers=3, absences=(Absence(1, 400.0),))
    made = tg.schedule(cluster=cluster, updates=30)
    task = Watched().task()
    execution = Exact(Job.on_one_shard(made, task, tg.rules.dana(0.001)))
    while execution.position < made.groups:
        execution.advance()
    assert sorted(execution.shards[0].owns) == [0, 2]
    velocities = [own.optimizer.velocity for own in execution.shards[0].owns.values()]
    total = execution.shards[0].state.optimizer.velocity_sum
    assert torch.allclose(total, sum(velocities), rtol=0, atol=1e-9)


def diverging(at: int, what: float) -> tg.FunctionTask:
    def grad(view: Tensor, worker: int, step: int) -> tuple[Tensor, Tensor]:
        loss = torch.tensor(what if step == at and worker == 1 else 1.0)
        return loss, view

    return tg.FunctionTask(START, grad)


@pytest.mark.parametrize("what", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run(what: float, tmp_path: Path) -> None:
    made = tg.Schedule.from_order([0, 1] * 20, 2)
    saving = tg.Checkpoints(tmp_path, every=4)
    message = f"the loss became {what} at update 15, in a gradient of worker 1.*smaller lr"
    with pytest.raises(tg.Diverged, match=message) as error:
        tg.execute(made, diverging(7, what), tg.rules.sgd(LR), "exact", checkpoints=saving)
    assert (error.value.update, error.value.worker) == (15, 1)
    # The last good checkpoint stays, and a task that is well goes on from it.
    ticks: list[int] = []
    tg.execute(
        made,
        diverging(99, what),
        tg.rules.sgd(LR),
        "exact",
        checkpoints=replace(saving, resume=True),
        watch=lambda tick: ticks.append(tick.updates),
    )
    assert ticks == list(range(13, 41))


def test_records_and_ticks() -> None:
    """Evaluated at the start, every 4 updates and at the end; a tick after each update."""
    task = tg.FunctionTask(
        START,
        lambda view, worker, step: (view.sum(), view),
        evaluate=lambda p: {"sum": float(p.sum())},
    )
    made = tg.schedule(tg.Async(), tg.Gamma(workers=2), 10)
    ticks: list[Any] = []
    run = tg.execute(made, task, tg.rules.sgd(LR), engine="exact", evaluation=4, watch=ticks.append)
    assert run.history.column("update") == [0, 4, 8, 10]
    assert run.history.column("time_s") == [0.0, *made.group_time_s[[3, 7, 9]].tolist()]
    assert run.history.column("samples") == [0, 4, 8, 10]
    assert run.history.column("validation_sum")[0] == 10.0
    assert run.history.column("batch_loss") == pytest.approx(
        [np.mean(run.history.loss[a:b]) for a, b in ((0, 4), (4, 8), (8, 10))]
    )
    assert [(tick.updates, tick.total) for tick in ticks] == [(k, 10) for k in range(1, 11)]
    assert [tick.loss for tick in ticks] == run.history.loss


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "quick"}, "engine must be one of"),
        ({"evaluation": -1}, "evaluation: every must be a whole number of at least 0"),
        ({"shard_by": "layer"}, "shard_by must be 'slice' or 'tensor'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tg.execute(tg.Schedule.from_order([0], 1), Watched().task(), tg.rules.sgd(LR), **options)


def test_a_split_that_the_task_does_not_have_is_refused() -> None:
    data = Data(Split(torch.ones(4, 1), torch.ones(4, 1)))
    task = tg.ModuleTask(torch.nn.Linear(1, 1), "mse", data)
    made, rule = tg.Schedule.from_order([0, 0], 1), tg.rules.sgd(LR)
    with pytest.raises(ValueError, match=r"has only 'train': use splits=\['train'\]"):
        tg.execute(made, task, rule, evaluation=1)
    run = tg.execute(made, task, rule, evaluation=tg.Evaluation(1, ["train"]))
    assert len(run.history.column("train_loss")) == 3
    run = tg.execute(made, task, rule, evaluation=tg.Evaluation(1, []))
    assert len(run.history.column("batch_loss")) == 2
    tg.execute(made, task, rule)
    # A function that was given no `evaluate` has no splits: the batch loss is what it records.
    run = tg.execute(made, Watched().task(), rule, evaluation=1)
    assert len(run.history.column("batch_loss")) == 2


def test_more_shards_than_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="choose between 1 and 4 shards"):
        tg.execute(tg.Schedule.from_order([0], 1, shards=5), Watched().task(), tg.rules.sgd(LR))


def test_simulate_makes_the_schedule_and_executes_it() -> None:
    options: dict[str, Any] = {"policy": tg.Sync(), "cluster": tg.Gamma(workers=3), "updates": 7}
    run = tg.simulate(Watched().task(), tg.rules.sgd(LR), seed=4, shards=2, **options)
    made = tg.schedule(seed=4, shards=2, **options)
    assert run.schedule == made
    assert torch.equal(run.params, tg.execute(made, Watched().task(), tg.rules.sgd(LR)).params)
