"""DyLU: a trace by hand, an independent event queue, its limits, and what it does not go with."""

import heapq
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import tardigrad as tg
from tardigrad.clusters import Absence
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.prefix import prefix
from tardigrad.scheduling.validate import validate
from tardigrad.tasks import Turn
from tests.work.test_local_steps import task


def test_a_trace_by_hand() -> None:
    """Steps of 1, 2 and 4 s, H = 4. All begin with 4 steps; worker 1 is heard of at 8 s (v = 1/2 of
    the fastest), worker 2 at 16 s (1/4); then all push every 4 s."""
    cluster = tg.Constant(workers=3, step_s=(1.0, 2.0, 4.0))
    made = tg.schedule(tg.DyLU(tg.Async()), cluster, updates=14, batches=4)
    assert made.worker.tolist()[:11] == [0, 1, 2, 0, 1, 0, 1, 0, 2, 1, 0]
    assert made.start_s.tolist()[:11] == [0, 0, 0, 4, 8, 8, 12, 12, 16, 16, 16]
    assert made.steps.tolist()[:11] == [4, 4, 4, 4, 2, 4, 2, 4, 1, 2, 4]
    assert made.group_time_s.tolist()[:11] == [4, 8, 8, 12, 12, 16, 16, 16, 20, 20, 20]
    first, own = made.first_batch(4)
    assert first.tolist()[:11] == [0, 4, 8, 12, 16, 18, 22, 24, 28, 29, 31]
    assert own.tolist()[:11] == [0, 0, 0, 4, 4, 8, 6, 12, 4, 8, 16]


@pytest.mark.parametrize("rows", [1, 3])
def test_equals_an_event_queue_of_its_own(rows: int) -> None:
    """Gamma times, one shard, nobody waits: written down once more."""
    workers, most, cluster = 4, 6, tg.Gamma(workers=4, heterogeneous=True)
    made = tg.schedule(tg.DyLU(tg.Async(), rows), cluster, updates=150, seed=3, batches=most)
    times = cluster.realise(3)
    took: dict[int, list[tuple[int, float]]] = {w: [] for w in range(workers)}
    taken = [0] * workers
    queue: list[tuple[float, int, int, int, float]] = []
    order: list[tuple[int, int, float]] = []

    def speed(worker: int) -> float:
        last = took[worker][-rows:]
        return sum(steps for steps, _ in last) / sum(seconds for _, seconds in last)

    def begin(worker: int, now_s: float) -> None:
        steps = most
        if took[worker]:
            fastest = max(speed(other) for other in range(workers) if took[other])
            steps = max(1, math.floor(most * speed(worker) / fastest + 1e-7))
        seconds = sum(float(times.step_s(worker, taken[worker] + k)) for k in range(steps))
        taken[worker] += steps
        order.append((worker, steps, now_s))
        heapq.heappush(queue, (now_s + seconds, len(order), worker, steps, now_s))

    for worker in range(workers):
        begin(worker, 0.0)
    for _ in range(150):
        now_s, _, worker, steps, began_s = heapq.heappop(queue)
        took[worker].append((steps, now_s - began_s))
        begin(worker, now_s)
    order = order[: made.rows]
    assert made.worker.tolist() == [worker for worker, _, _ in order]
    assert made.steps.tolist() == [steps for _, steps, _ in order]
    assert made.start_s.tolist() == pytest.approx([start_s for _, _, start_s in order])
    assert len(set(made.steps.tolist())) > 2


@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync(), tg.StaleSynchronous(1)], ids=str)
def test_workers_of_one_speed_and_single_steps_are_the_policy_itself(policy: tg.Policy) -> None:
    cluster = tg.Constant(workers=3, step_s=1.5)
    plain = tg.schedule(policy, cluster, updates=40, batches=8)
    paced = tg.schedule(tg.DyLU(policy), cluster, updates=40, batches=8)
    assert (paced.steps == 8).all()
    assert replace(paced, steps=plain.steps, about=plain.about) == plain
    gamma = tg.Gamma(workers=3)
    single = tg.schedule(tg.DyLU(policy), gamma, updates=40)
    plain = tg.schedule(policy, gamma, updates=40)
    assert replace(single, about=plain.about) == plain


def test_speeds_of_those_who_left_do_not_count() -> None:
    """The fastest leaves: the second is then the fastest, and takes all steps."""
    cluster = tg.Constant(workers=2, step_s=(1.0, 2.0), absences=(Absence(0, 20.5),))
    made = tg.schedule(tg.DyLU(tg.Async()), cluster, updates=20, batches=4)
    slow = made.worker == 1
    assert set(made.steps[slow & (made.start_s > 5) & (made.start_s < 20)].tolist()) == {2}
    assert set(made.steps[slow & (made.start_s > 22)].tolist()) == {4}


AROUND = [tg.RampUp(tg.DyLU(tg.Async()), 5), tg.DyLU(tg.RampUp(tg.Async(), 5))]


@pytest.mark.parametrize("around", AROUND)
def test_other_policies_go_around_it_and_in_it(around: tg.Policy) -> None:
    cluster = tg.Constant(workers=3, step_s=(1.0, 2.0, 4.0))
    made = tg.schedule(around, cluster, updates=60, batches=4)
    assert [int(made.steps[made.worker == worker][-1]) for worker in range(3)] == [4, 2, 1]


def paced(updates: int = 25) -> Schedule:
    cluster = tg.Constant(workers=3, step_s=(1.0, 2.0, 4.0))
    return tg.schedule(tg.DyLU(tg.Async()), cluster, updates, batches=4)


@pytest.mark.parametrize("norm", [False, True])
def test_rows_of_different_steps_execute_as_a_loop_written_with_torch(norm: bool) -> None:
    """An optimizer for each worker, and batches dealt by counters. With BatchNorm not AdamW: a bias
    before it has a gradient of rounding errors alone, which AdamW makes large."""
    schedule, made = paced(), task(norm=norm, sampling="epoch")
    adamw = tg.rules.adamw(1e-2, weight_decay=0.1)
    work = tg.LocalSteps(4, tg.rules.sgd(0.05, momentum=0.9) if norm else adamw)
    run = tg.execute(schedule, made, tg.rules.sgd(0.7), work=work, evaluation=tg.Evaluation(25, ()))

    own: dict[int, tuple[nn.Parameter, torch.optim.Optimizer]] = {}
    versions, dealt, taken, done = [made.start()], 0, [0, 0, 0], {}
    pushed = schedule.group_rows.tolist()
    for row in range(schedule.rows):
        worker, steps = int(schedule.worker[row]), int(schedule.steps[row])
        done[row] = (worker, steps, dealt, taken[worker])
        dealt, taken[worker] = dealt + steps, taken[worker] + steps
    for row in pushed:
        worker, steps, first, mine = done[row]
        view = versions[int(schedule.read[row, 0])]
        if worker not in own:
            param = nn.Parameter(view.clone())
            own[worker] = (param, torch.optim.AdamW([param], lr=1e-2, weight_decay=0.1))
            if norm:
                own[worker] = (param, torch.optim.SGD([param], lr=0.05, momentum=0.9))
        param, stepper = own[worker]
        with torch.no_grad():
            param.copy_(view)
        for k in range(steps):
            param.grad = made.gradient(param.detach(), Turn(worker, mine + k, first + k)).grad
            stepper.step()
        versions.append(versions[-1] - 0.7 * (view - param.detach()))
    torch.testing.assert_close(run.params, versions[-1], rtol=0, atol=1e-12)
    batches = sum(done[row][1] for row in pushed)
    assert run.history.records[-1]["samples"] == 8 * batches
    if norm:
        assert int(run.buffers[2]) == batches


def test_a_stopped_and_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    work, made = tg.LocalSteps(4, tg.rules.sgd(0.05, momentum=0.9)), task(norm=True)
    whole = tg.execute(paced(), made, tg.rules.sgd(0.7), work=work)
    kept = tg.Checkpoints(tmp_path, every=10, resume=True)
    stop = tg.Stop(virtual_s=24.0)
    begun = tg.execute(paced(), made, tg.rules.sgd(0.7), work=work, checkpoints=kept, stop=stop)
    assert begun.history.loss != whole.history.loss
    again = tg.execute(paced(), made, tg.rules.sgd(0.7), work=work, checkpoints=kept)
    assert torch.equal(again.params, whole.params)
    assert torch.equal(again.buffers[0], whole.buffers[0])


def test_steps_are_saved_and_cut_with_the_rows(tmp_path: Path) -> None:
    made = paced()
    made.save(tmp_path / "paced")
    assert tg.Schedule.load(tmp_path / "paced") == made
    shorter = prefix(made, 7)
    validate(shorter)
    assert shorter.steps.tolist() == made.steps[: shorter.rows].tolist()
    with pytest.raises(ValueError, match="a row takes no steps"):
        validate(replace(made, steps=made.steps * 0))
    with pytest.raises(ValueError, match="steps has the wrong length"):
        validate(replace(made, steps=made.steps[1:]))


def test_what_it_does_not_go_with_is_refused() -> None:
    policy, made = tg.DyLU(tg.Async()), task()
    with pytest.raises(ValueError, match=r"DyLU goes by how fast.* Dispatcher has no clock"):
        tg.schedule(policy, tg.Dispatcher(workers=2), updates=4, batches=2)
    with pytest.raises(ValueError, match="rows must be"):
        tg.DyLU(tg.Async(), rows=0)
    with pytest.raises(ValueError, match=r"rows of 4 steps, and LocalSteps takes 2"):
        tg.execute(paced(), made, tg.rules.sgd(0.1), work=tg.LocalSteps(2, tg.rules.sgd(0.1)))
    with pytest.raises(ValueError, match=r"rows of 4 steps, and OneGradient takes 1"):
        tg.execute(paced(), made, tg.rules.sgd(0.1))
    with pytest.raises(ValueError, match="DyLU decides on the steps of each row"):
        tg.simulate(
            made, tg.rules.fasgd(0.01), policy, tg.Gamma(workers=2), updates=4,
            work=tg.LocalSteps(2, tg.rules.sgd(0.1), keep_state=False),
            link=tg.BandwidthAware(c_push=0.5, c_pull=0.5),
        )  # fmt: skip
