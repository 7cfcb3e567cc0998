"""Synchronous groups as one larger batch: where that is the same, and that it is."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.engine.execute import prepare
from tardigrad.engine.fast import groups
from tardigrad.engine.fast.cpu_stream import CpuStream
from tardigrad.engine.fast.groups import first_of_each
from tardigrad.engine.job import Job
from tardigrad.rules import Correction, Now, Push, Rule, Sgd, Signal
from tardigrad.tasks import TASKS, Data, ModuleTask, Split, Turn
from tardigrad.tasks.module import initialised
from tests.engine.fast_cases import POLICY_CASES, RULE_CASES, run, task

SYNC = (tg.Sync(), tg.Gamma(workers=4))


@pytest.mark.parametrize(
    "rule", ["sgd", "fasgd", "gap_aware", "adam_ga", "delay_compensated_adaptive", "fedasync"]
)
@pytest.mark.parametrize("policy", [tg.Sync(), tg.Backup(backups=1)], ids=["sync", "backup"])
def test_a_round_as_one_batch_follows_the_exact_executor(rule: str, policy: Any) -> None:
    schedule = tg.schedule(policy, tg.Gamma(workers=4, heterogeneous=True), updates=120, seed=2)
    said: list[str] = []
    made = prepare(schedule, task(), RULE_CASES[rule], "fast", say=said.append)
    exact = run(schedule, RULE_CASES[rule], "exact", evaluation=30)
    fast = run(schedule, RULE_CASES[rule], "fast", evaluation=30)
    if isinstance(made, CpuStream):
        assert any("as one of all their samples" in line for line in said)
    else:
        assert not RULE_CASES[rule].takes_means
    assert (fast.params - exact.params).abs().max() <= 1e-9
    assert fast.history.loss == pytest.approx(exact.history.loss, abs=1e-9)
    for mine, theirs in zip(fast.history.records, exact.history.records, strict=True):
        assert mine["samples"] == theirs["samples"]


def close_to_exact(schedule: tg.Schedule, rule: Rule, of: ModuleTask) -> bool:
    fast = run(schedule, rule, "fast", task=of)
    exact = run(schedule, rule, "exact", task=of)
    return bool((fast.params - exact.params).abs().max() <= 1e-9)


def test_a_class_that_comes_late_and_weighs_more_is_not_overlooked() -> None:
    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, weight=outputs.new_tensor([1.0, 1.0, 20.0]))

    of, schedule = task(), tg.schedule(*SYNC, updates=60)
    chosen = of.indices_of(*[schedule.worker, schedule.step, np.arange(schedule.rows)])
    early = chosen[: schedule.rows // 2].unique()
    targets = of.data.train.targets % 2  # the third class nowhere, and then in the second half
    rare = torch.tensor(np.setdiff1d(chosen.unique(), early)[:6])
    assert len(rare) == 6
    targets[rare] = 2
    data = Data(Split(of.data.train.inputs, targets))
    other = ModuleTask(of.module, weighted, data, 5, dtype="float64")
    assert first_of_each(Job.on_one_shard(schedule, of, RULE_CASES["sgd"])) is not None
    assert first_of_each(Job.on_one_shard(schedule, other, RULE_CASES["sgd"])) is None
    assert close_to_exact(schedule, RULE_CASES["sgd"], other)


@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(), lambda outputs, targets: F.cross_entropy(outputs, targets)]
)
def test_a_loss_of_ones_own_leaves_the_round_as_it_is(loss: Any) -> None:
    other = ModuleTask(task().module, loss, task().data, 5, dtype="float64")
    assert (
        first_of_each(Job.on_one_shard(tg.schedule(*SYNC, updates=10), other, RULE_CASES["sgd"]))
        is None
    )


class Centred(nn.Module):
    """Subtracts the batch's mean, so that samples see each other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.mean(0))


def test_a_model_whose_samples_see_each_other_leaves_the_round_as_it_is() -> None:
    other = ModuleTask(initialised(Centred, 0), "cross_entropy", task().data, 5, dtype="float64")
    schedule = tg.schedule(*SYNC, updates=40)
    assert first_of_each(Job.on_one_shard(schedule, other, RULE_CASES["sgd"])) is None
    assert close_to_exact(schedule, RULE_CASES["sgd"], other)


@pytest.mark.parametrize("name", ["logistic_regression", "mnist_mlp"])
def test_a_round_of_a_ready_made_task_is_one_batch(name: str) -> None:
    of = TASKS[name](train_size=200, validation=0)
    assert isinstance(of, ModuleTask)
    assert of.averages


def test_targets_that_broadcast_against_outputs_leave_the_round_as_it_is() -> None:
    inputs = task().data.train.inputs
    schedule = tg.schedule(*SYNC, updates=10)
    for targets, merges in ((inputs[:, :1], True), (inputs[:, 0], False)):
        data = Data(Split(inputs, targets))
        other = ModuleTask(nn.Linear(12, 1), "mse", data, 5, dtype="float64")
        found = first_of_each(Job.on_one_shard(schedule, other, RULE_CASES["sgd"]))
        assert (found is not None) == merges


class Huge(Correction[Any, Any]):
    """g, but nothing above a million: what no gradient of a trial would show."""

    def correct(
        self, theta: Tensor, state: Any, own: Any, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Any]:
        grad = push.grad.clamp(-1e6, 1e6)
        return Signal(grad, grad), own


def test_a_rule_that_differs_for_large_gradients_alone_is_not_overlooked() -> None:
    of, rule = task(), Rule(1e-9, Sgd(), Huge())
    scaled = Data(Split(of.data.train.inputs * 2e7, of.data.train.targets))
    large = ModuleTask(of.module, "cross_entropy", scaled, 5, dtype="float64")
    schedule = tg.schedule(*SYNC, updates=40)
    grads = [large.gradient(large.start(), Turn(w, 0, w)).grad for w in range(4)]
    assert any(grad.abs().max() > 1e6 for grad in grads)
    assert first_of_each(Job.on_one_shard(schedule, large, rule)) is None
    assert close_to_exact(schedule, rule, large)


def test_samples_that_the_loss_leaves_out_leave_the_round_as_it_is() -> None:
    of = task()
    labels = of.data.train.targets.clone()
    labels[-1] = -100
    data = Data(Split(of.data.train.inputs, labels))
    other = ModuleTask(of.module, "cross_entropy", data, 5, dtype="float64")
    schedule = tg.schedule(*SYNC, updates=60)
    assert first_of_each(Job.on_one_shard(schedule, other, RULE_CASES["sgd"])) is None
    assert close_to_exact(schedule, RULE_CASES["sgd"], other)


def test_a_model_of_one_batch_size_is_batched_round_by_round() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.view(5, 12))

    other = ModuleTask(initialised(Fixed, 0), "cross_entropy", task().data, 5, dtype="float64")
    schedule, said = tg.schedule(*SYNC, updates=20), list[str]()
    fast = run(schedule, RULE_CASES["sgd"], "fast", task=other, say=said.append)
    exact = run(schedule, RULE_CASES["sgd"], "exact", task=other)
    assert said == ["engine: fast"]
    assert (fast.params - exact.params).abs().max() <= 1e-12


@pytest.mark.parametrize("name", ["gamma", "shards", "sync", "soft", "stale"])
def test_other_groups_are_left_as_they_are(name: str) -> None:
    policy, cluster, shards = POLICY_CASES[name]
    schedule = tg.schedule(policy, cluster, updates=60, shards=shards, seed=1)
    assert first_of_each(Job.on_one_shard(schedule, task(), RULE_CASES["sgd"])) is None


def test_a_group_is_named_by_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = tg.schedule(*SYNC, updates=10)
    found = first_of_each(Job.on_one_shard(schedule, task(), RULE_CASES["sgd"]))
    assert found is not None
    assert np.array_equal(found.group_rows, schedule.group_rows[::4])
    assert found.updates == schedule.updates
    monkeypatch.setattr(groups, "MOST_BYTES", 4 * 5 * 12 * 8 - 1)
    assert first_of_each(Job.on_one_shard(schedule, task(), RULE_CASES["sgd"])) is None


def test_what_has_statistics_is_left_as_it_is() -> None:
    schedule = tg.schedule(*SYNC, updates=10)
    assert (
        first_of_each(Job.on_one_shard(schedule, task(batch_norm=True), RULE_CASES["sgd"])) is None
    )


def test_a_group_that_diverges_is_told() -> None:
    with pytest.raises(tg.Diverged):
        run(tg.schedule(*SYNC, updates=60), tg.rules.sgd(lr=1e200), "fast")
