"""Local steps: their limits, an independent loop, state in the order of a worker's steps."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tardigrad as tg
from tardigrad.tasks import Turn
from tests.work.heavy_ball import HeavyBall

LR = 0.05


def task(dtype: str = "float64", norm: bool = False, sampling: Any = "independent") -> Any:
    """A perceptron on noise, with BatchNorm or without."""
    torch.manual_seed(1)
    made = torch.Generator().manual_seed(2)
    inputs = torch.randn(240, 6, generator=made)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
    layers = [nn.Linear(6, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.Tanh(), nn.Linear(8, 2)]
    return tg.ModuleTask(
        nn.Sequential(*layers), "cross_entropy", (inputs, labels), batch_size=8, dtype=dtype,
        sampling=sampling, workers=4,
    )  # fmt: skip


def simulated(work: tg.Work[Any] | None, rule: Any = None, **asked: Any) -> tg.Run:
    asked = {"cluster": tg.Gamma(workers=3), "updates": 12, "task": task()} | asked
    made = asked.pop("task")
    return tg.simulate(made, rule or tg.rules.sgd(LR), work=work, engine="exact", **asked)


def test_one_step_of_sgd_at_rate_1_is_a_gradient() -> None:
    plain, local = simulated(None), simulated(tg.LocalSteps(1, tg.rules.sgd(1.0)))
    assert local.schedule == plain.schedule
    torch.testing.assert_close(local.params, plain.params, rtol=0, atol=1e-12)


@pytest.mark.parametrize("keep", [True, False])
def test_one_worker_under_outer_sgd_at_rate_1_is_the_inner_loop(keep: bool) -> None:
    asked: dict[str, Any] = {"cluster": tg.Gamma(workers=1), "updates": 5}
    inner = tg.rules.adamw(1e-2) if keep else tg.rules.sgd(LR)
    local = simulated(tg.LocalSteps(4, inner, keep_state=keep), tg.rules.sgd(1.0), **asked)
    plain = simulated(None, inner, **(asked | {"updates": 20}))
    torch.testing.assert_close(local.params, plain.params, rtol=0, atol=1e-12)
    losses = [sum(plain.history.loss[4 * i : 4 * i + 4]) / 4 for i in range(5)]
    assert local.history.loss == pytest.approx(losses, abs=1e-12)


@pytest.mark.parametrize("keep", [True, False])
def test_equals_a_loop_written_with_torch(keep: bool) -> None:
    """Three workers in a fixed order, each with an AdamW of its own."""
    order, steps, made = [0, 1, 2, 0, 2, 2, 1, 0], 3, task()
    schedule = tg.Schedule.from_order(order, num_workers=3)
    inner = tg.rules.adamw(1e-2, weight_decay=0.1)
    work = tg.LocalSteps(steps, inner, keep_state=keep)
    run = tg.execute(schedule, made, tg.rules.sgd(0.7), "exact", work=work)

    theta = made.start()
    views = {worker: theta.clone() for worker in range(3)}
    taken = dict.fromkeys(range(3), 0)
    own: dict[int, Any] = {}
    pairs = zip(schedule.worker.tolist(), schedule.step.tolist(), strict=True)
    rows = {pair: row for row, pair in enumerate(pairs)}
    for worker in order:
        if worker not in own or not keep:
            param = nn.Parameter(views[worker].clone())
            own[worker] = (param, torch.optim.AdamW([param], lr=1e-2, weight_decay=0.1))
        param, stepper = own[worker]
        with torch.no_grad():
            param.copy_(views[worker])
        row, step = rows[worker, taken[worker]], taken[worker]
        for k in range(steps):
            turn = Turn(worker, step * steps + k, row * steps + k)
            param.grad = made.gradient(param.detach(), turn).grad
            stepper.step()
        taken[worker] += 1
        theta = theta - 0.7 * (views[worker] - param.detach())
        views[worker] = theta.clone()
    torch.testing.assert_close(run.params, theta, rtol=0, atol=1e-12)


def test_gradients_are_clipped_at_every_inner_step() -> None:
    """Beside torch, of one row; written out, because torch adds 1e-6 to the norm."""
    made, norm = task(), 0.05
    work = tg.LocalSteps(4, tg.rules.sgd(LR, 0.9), clip_norm=norm)
    view, turn = made.start(), Turn(1, 4, 12)
    delivery = work.run(made, view, work.start(made, view), turn, 4)
    assert delivery is not None
    param = nn.Parameter(view.clone())
    stepper = torch.optim.SGD([param], lr=LR, momentum=0.9)
    for k in range(4):
        grad = made.gradient(param.detach(), turn.later(k)).grad
        assert float(grad.norm()) > norm
        param.grad = grad * norm / grad.norm()
        stepper.step()
    expected = view - param.detach()
    torch.testing.assert_close(delivery.gradient.grad, expected, rtol=0, atol=1e-12)


def test_a_class_of_torch_is_taken_at_its_own_rate() -> None:
    ours = simulated(tg.LocalSteps(3, tg.rules.adamw(1e-3, weight_decay=0.01)))
    theirs = simulated(tg.LocalSteps(3, torch.optim.AdamW))
    torch.testing.assert_close(ours.params, theirs.params, rtol=0, atol=1e-12)


def test_micro_batches_are_one_large_batch() -> None:
    made = task()
    view, turn = made.start(), Turn(1, 4, 12)
    delivery = tg.MicroBatches(4).run(made, view, (), turn, 4)
    assert delivery is not None
    inputs, labels = zip(*(made.batch(turn.later(k)) for k in range(4)), strict=True)
    module = made.trained(view, ()).train()
    loss = nn.functional.cross_entropy(module(torch.cat(inputs)), torch.cat(labels))
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, module.parameters())])
    torch.testing.assert_close(delivery.gradient.grad, expected, rtol=0, atol=1e-12)
    assert float(delivery.gradient.loss) == pytest.approx(loss.item(), abs=1e-12)


def test_rows_take_the_times_of_their_steps_and_see_each_sample_once_an_epoch() -> None:
    cluster = tg.Gamma(workers=2)
    plain = tg.schedule(cluster=cluster, updates=60)
    several = tg.schedule(cluster=cluster, updates=20, batches=3)
    for worker in range(2):
        mine = several.worker == worker
        one = plain.worker == worker
        took = (plain.end_s - plain.start_s)[one]
        rows = (several.end_s - several.start_s)[mine]
        known = int((rows == rows).sum())
        sums = [took[3 * i : 3 * i + 3].sum() for i in range(min(known, len(took) // 3 - 1))]
        assert rows[: len(sums)] == pytest.approx(sums, rel=1e-12)
    assert tg.schedule(cluster=cluster, updates=20, batches=3, bulk=False) == several

    made, seen = task(sampling="epoch"), []
    for row in range(10):  # 10 rows of 3 batches of 8: the whole of 240 samples
        turn = Turn(0, row * 3, row * 3)
        for k in range(3):
            at = turn.later(k)
            seen += made.indices_of([at.worker], [at.step], [at.row])[0].tolist()
    assert sorted(seen) == list(range(240))


def test_samples_count_all_batches_and_every_batch_norm_is_folded() -> None:
    made = task(norm=True)
    run = simulated(
        tg.LocalSteps(3, tg.rules.sgd(LR)), task=made, evaluation=tg.Evaluation(12, ("train",))
    )
    assert run.history.records[-1]["samples"] == 12 * 3 * 8
    assert int(run.buffers[2]) == 36  # batches counted


class TestStateOfItsOwn:
    """Of dropped rows too, in the order of steps, and saved."""

    work = tg.LocalSteps(2, tg.rules.sgd(LR, momentum=0.9))

    def test_dropped_rows_are_computed(self) -> None:
        """With one backup worker a row is dropped each round; its worker's momentum has seen it."""
        made = task()
        asked: dict[str, Any] = {"policy": tg.Backup(1), "cluster": tg.Gamma(workers=3)}
        run = simulated(self.work, task=made, updates=6, **asked)
        schedule = run.schedule
        assert len(schedule.drop_row) > 2
        params = replayed_by_hand(made, schedule, self.work)
        torch.testing.assert_close(run.params, params, rtol=0, atol=1e-12)

    def test_resumed_is_the_same_to_the_bit(self, tmp_path: Path) -> None:
        cluster = tg.Gamma(workers=3)
        asked: dict[str, Any] = {"policy": tg.Backup(1), "cluster": cluster, "shards": 2}
        whole = simulated(self.work, updates=12, **asked)
        first = tg.Checkpoints(tmp_path, every=5)

        class Enough(Exception):
            pass

        def stop(tick: Any) -> None:
            if tick.updates == 7:
                raise Enough

        with pytest.raises(Enough):
            simulated(self.work, updates=12, checkpoints=first, watch=stop, **asked)
        again = tg.Checkpoints(tmp_path, every=5, resume=True)
        resumed = simulated(self.work, updates=12, checkpoints=again, **asked)
        assert torch.equal(resumed.params, whole.params)
        assert tg.replay(resumed).difference is None

    def test_begins_anew_after_a_return(self) -> None:
        away = (tg.Absence(0, 900.0, 1500.0),)
        cluster = tg.Gamma(workers=2, absences=away)
        made = task()
        run = simulated(self.work, task=made, cluster=cluster, updates=20)
        anew = replayed_by_hand(made, run.schedule, self.work, fresh_s=1500.0)
        torch.testing.assert_close(run.params, anew, rtol=0, atol=1e-12)
        kept = replayed_by_hand(made, run.schedule, self.work)
        assert float((run.params - kept).abs().max()) > 1e-6


def replayed_by_hand(
    made: Any, schedule: tg.Schedule, work: Any, fresh_s: float | None = None
) -> Tensor:
    """Every row that ended, of one worker after the other as far as its view is known, by a loop of
    its own. Worker 0's state begins anew with its first row after a time."""
    versions, pushed = [made.start()], {}
    states: dict[int, Any] = {}
    left = {worker: [] for worker in range(schedule.workers)}  # type: dict[int, list[int]]
    for row in range(schedule.rows):
        if math.isfinite(schedule.end_s[row]):
            left[int(schedule.worker[row])].append(row)
    for group in range(schedule.groups):
        for worker, rows in left.items():
            while rows and schedule.read[rows[0], 0] < len(versions):
                row = rows.pop(0)
                if worker == 0 and fresh_s is not None and schedule.start_s[row] >= fresh_s:
                    states.pop(0)
                    fresh_s = None
                state = states.get(worker) or work.start(made, made.start())
                turn = Turn(worker, int(schedule.step[row]) * work.batches, row * work.batches)
                view = versions[int(schedule.read[row, 0])]
                (_, grad, _), states[worker] = work.run(made, view, state, turn, work.batches)
                pushed[row] = grad
        applied = torch.stack([pushed[row] for row in schedule.group(group).tolist()])
        versions.append(versions[-1] - LR * applied.mean(0))
    return versions[-1]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="looks ahead"):
        tg.LocalSteps(2, tg.rules.dana(0.1))
    with pytest.raises(ValueError, match="steps must be"):
        tg.LocalSteps(0, tg.rules.sgd(0.1))
    with pytest.raises(ValueError, match=r"a class such as torch\.optim\.AdamW"):
        tg.LocalSteps(2, "adamw")  # type: ignore[arg-type]
    work = tg.LocalSteps(2, tg.rules.sgd(0.1))
    with pytest.raises(ValueError, match=r"a link that averages .* use push=1$"):
        simulated(work, link=tg.Every(push=2))
    budget = tg.Budget(60.0, direction="push")
    with pytest.raises(ValueError, match=r'a link that averages .* use on_drop="reapply"$'):
        simulated(work, link=budget)
    made = tg.schedule(cluster=tg.Gamma(workers=3), updates=9, link=tg.Every(push=2))
    with pytest.raises(ValueError, match=r"a link that averages .* use a link that sends every"):
        tg.execute(made, task(), tg.rules.sgd(LR), work=work)
    with pytest.raises(ValueError, match="b_staleness"):
        simulated(work, evaluation=tg.Evaluation(5, measures=("b_staleness",)))
    averaged = replace(tg.rules.sgd(0.1), ema=0.9)
    with pytest.raises(ValueError, match="nobody reads an average of a worker's own"):
        tg.LocalSteps(2, averaged)
    with pytest.raises(ValueError, match=r"inner: no_decay: no tensor .* '\*foo'"):
        simulated(tg.LocalSteps(2, tg.rules.adamw(0.1, no_decay=("*foo",))))
    with pytest.raises(ValueError, match=r"inner: rate_scale: no tensor .* 'foo'"):
        simulated(tg.LocalSteps(2, replace(tg.rules.sgd(0.1), rate_scale={"foo": 2.0})))
    with pytest.raises(ValueError, match=r"a tg\.Work such as"):
        simulated(LR)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "kind"),
    [({"v": torch.zeros(1)}, "dict"), ((np.zeros(1),), "ndarray"), ((0,), "int"), (None, "None")],
)
def test_states_that_could_not_be_saved_are_refused(kept: Any, kind: str) -> None:
    @dataclass(frozen=True)
    class Keeps(HeavyBall):
        def start(self, task: Any, theta: Tensor) -> Any:
            return kept

    with pytest.raises(ValueError, match=rf"Keeps\.start: a state is made of tensors.* got {kind}"):
        simulated(Keeps())


@pytest.mark.parametrize("batches", [0, 2.5])
def test_a_row_of_a_work_is_of_whole_batches(batches: Any) -> None:
    @dataclass(frozen=True)
    class Takes(HeavyBall):
        @property
        def batches(self) -> int:
            taken: int = batches
            return taken

    with pytest.raises(ValueError, match=rf"Takes\.batches must be a whole .* got {batches}"):
        simulated(Takes())
