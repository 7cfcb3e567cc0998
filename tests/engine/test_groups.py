"""Synchronous groups as one larger batch: where that is the same, and that it is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fast_cases import POLICY_CASES, RULE_CASES, run, task
from torch import Tensor, nn
from torch.nn import functional as F

import tardigrad as tg
from tardigrad.engine.execute import prepare
from tardigrad.engine.fast import groups
from tardigrad.engine.fast.groups import first_of_each, takes_means
from tardigrad.engine.fast.stream import Stream
from tardigrad.layout import Layout
from tardigrad.rules import Correction, Now, Push, Rule, Sgd, Signal
from tardigrad.tasks import Data, ModuleTask, Split
from tardigrad.tasks.module import initialised

SYNC = (tg.Sync(), tg.Gamma(workers=4))


class Signs(Correction[Any, Any]):
    """Each gradient by its signs: not what their mean gives."""

    def correct(
        self, theta: Tensor, state: Any, own: Any, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Any]:
        signs = push.grad.sign()
        return Signal(signs, signs), own


@pytest.mark.parametrize("rule", ["sgd", "fasgd", "gap_aware", "adam_ga", "delay_adaptive"])
@pytest.mark.parametrize("policy", [tg.Sync(), tg.Backup(backups=1)], ids=["sync", "backup"])
def test_a_round_as_one_batch_follows_the_exact_executor(rule: str, policy: Any) -> None:
    schedule = tg.schedule(policy, tg.Gamma(workers=4, heterogeneous=True), updates=120, seed=2)
    said: list[str] = []
    made = prepare(schedule, task(), RULE_CASES[rule], "fast", say=said.append)
    exact = run(schedule, RULE_CASES[rule], "exact", evaluate_every=30)
    fast = run(schedule, RULE_CASES[rule], "fast", evaluate_every=30)
    if isinstance(made, Stream):
        assert any("as one of all their samples" in line for line in said)
    else:
        assert not takes_means(RULE_CASES[rule])
    assert (fast.params - exact.params).abs().max() <= 1e-9
    assert fast.history.loss == pytest.approx(exact.history.loss, abs=1e-9)
    for mine, theirs in zip(fast.history.records, exact.history.records, strict=True):
        assert mine["samples"] == theirs["samples"]


def test_which_rules_take_a_group_for_its_mean() -> None:
    assert all(takes_means(RULE_CASES[name]) for name in ("sgd", "fasgd", "gap_aware", "adam_sa"))
    assert not takes_means(RULE_CASES["dana"])  # rows per worker
    assert not takes_means(replace(RULE_CASES["sgd"], clip_norm=1.0))
    assert not takes_means(Rule(0.1, Sgd(), Signs()))
    # With a small rate the order within a group hardly shows.
    assert not takes_means(tg.rules.delay_compensated(lr=1e-4, within_group=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loss_that_weighs_samples_by_the_others_is_left_as_it_is(dtype: str) -> None:
    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, weight=outputs.new_tensor([1.0, 1.2, 1.0]))

    schedule = tg.schedule(*SYNC, updates=60)
    of = task(dtype)
    other = ModuleTask(of._module, weighted, of.data, 5, dtype=dtype)
    assert first_of_each(schedule, of, RULE_CASES["sgd"]) is not None
    assert first_of_each(schedule, other, RULE_CASES["sgd"]) is None


def test_samples_that_the_loss_leaves_out_leave_the_round_as_it_is() -> None:
    of = task()
    labels = of.data.train.targets.clone()
    labels[-1] = -100
    other = ModuleTask(of._module, "cross_entropy", Data(Split(of.data.train.inputs, labels)), 5)
    assert first_of_each(tg.schedule(*SYNC, updates=10), other, RULE_CASES["sgd"]) is None


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
    assert first_of_each(schedule, task(), RULE_CASES["sgd"]) is None


def test_a_group_is_named_by_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = tg.schedule(*SYNC, updates=10)
    found = first_of_each(schedule, task(), RULE_CASES["sgd"])
    assert found is not None
    assert np.array_equal(found.group_rows, schedule.group_rows[::4])
    assert found.updates == schedule.updates
    monkeypatch.setattr(groups, "MOST_BYTES", 4 * 5 * 12 * 8 - 1)
    assert first_of_each(schedule, task(), RULE_CASES["sgd"]) is None


def test_what_has_statistics_is_left_as_it_is() -> None:
    schedule = tg.schedule(*SYNC, updates=10)
    assert first_of_each(schedule, task(batch_norm=True), RULE_CASES["sgd"]) is None


def test_a_group_that_diverges_is_told() -> None:
    with pytest.raises(tg.Diverged):
        run(tg.schedule(*SYNC, updates=60), tg.rules.sgd(lr=1e200), "fast")
