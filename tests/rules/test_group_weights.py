"""Gradients of a group that count for more or less than others, against the rules' slow twins.

A twin knows no weights. It is told a gradient of weight 3/6 three times, one of 2/6 twice: then
its mean is the weighted one. That does not do where something is moved once for each gradient
(DC-SSGD's sequence, DC-ASGD-a's mean square of each worker): those have a twin of their own here.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.trees import leaves
from tardigrad.engine.shard import Arrived, Shard
from tests.rules.reference_cases import ALL, LR
from tests.rules.reference_server import Now, Push, Reference, Vector, reference_run, zeros
from tests.rules.references import HeavyBall
from tests.rules.test_references import (
    LARGEST_DIFFERENCE,
    LAYOUT,
    THETA0,
    constant,
    difference,
    gradient,
    grouped_order,
    task,
)

TIMES = [(3, 2, 1), (1, 1, 4), (2, 2, 2)]
"""How often each gradient counts, group by group; of three the last has equal weights."""
WORKERS = 5


class Repeated(Reference):
    """A twin that is told each gradient as often as it counts."""

    def __init__(self, twin: Reference) -> None:
        self.twin, self.groups = twin, 0

    def start(self, theta: Vector) -> None:
        self.twin.start(theta)
        self.theta = self.twin.theta

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        times = TIMES[self.groups % len(TIMES)]
        self.groups += 1
        self.twin.update([p for p, n in zip(pushes, times, strict=True) for _ in range(n)], now)
        self.theta = self.twin.theta

    def sent(self, now: Now) -> Vector:
        return self.twin.sent(now)


class Weighted(HeavyBall):
    """Plain SGD on Σ w_i p_i, with delay compensation by a mean square of each worker; or, within a
    group, θ ← θ − η w_i p_i one after another."""

    def __init__(self, lam: float, adaptive: bool = False, within_group: bool = False) -> None:
        super().__init__()
        self.lam, self.adaptive, self.within_group = lam, adaptive, within_group
        self.square: dict[int, Vector] = {}
        self.groups = 0

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        times = TIMES[self.groups % len(TIMES)]
        self.groups += 1
        moved = zeros(self.theta)
        for push, n in zip(pushes, times, strict=True):
            at = [t - m for t, m in zip(self.theta, moved, strict=True)]
            at = at if self.within_group else self.theta
            square = self.square.setdefault(push.worker, zeros(self.theta))
            step = []
            for i, g in enumerate(push.grad):
                square[i] = 0.95 * square[i] + 0.05 * g * g
                lam = self.lam / math.sqrt(square[i] + 1e-7) if self.adaptive else self.lam
                step.append(g + lam * g * g * (at[i] - push.view[i]))
            moved = [m + now.lr * n / 6 * s for m, s in zip(moved, step, strict=True)]
        self.theta = [t - m for t, m in zip(self.theta, moved, strict=True)]


def weighted(schedule: tg.Schedule) -> tg.Schedule:
    given = [n / 6 for group in range(schedule.groups) for n in TIMES[group % len(TIMES)]]
    return replace(schedule, group_weights=np.array(given))


def check(rule: tg.Rule, twin: Reference) -> None:
    order = grouped_order(4, 3, WORKERS)
    plain = tg.Schedule.from_order(order, WORKERS, tg.SoftSync(size=3))
    run = tg.execute(weighted(plain), task(), rule, engine="exact")
    expected = reference_run(twin, THETA0, gradient, order, WORKERS, constant, LR, group=3)
    assert len(set(expected.delays)) > 2
    assert difference(run.params, expected.theta) <= LARGEST_DIFFERENCE
    equal = tg.execute(plain, task(), rule, engine="exact")
    assert (run.params - equal.params).abs().max() > 1e-4  # the weights do something


def once_per_gradient(rule: tg.Rule) -> bool:
    own = rule.start_own(task().start(), LAYOUT)
    return rule.within_group or bool(leaves(own))


@pytest.mark.parametrize(
    "name",
    [name for name, (rule, _) in ALL.items() if rule.takes_weights and not once_per_gradient(rule)],
)
def test_a_rule_equals_its_reference_with_weights(name: str) -> None:
    rule, twin = ALL[name]
    check(rule, Repeated(twin()))


def test_what_is_moved_once_for_each_gradient() -> None:
    check(rules.delay_compensated(LR, 0.5), Weighted(0.5))
    check(rules.delay_compensated(LR, 0.5, adaptive=True), Weighted(0.5, adaptive=True))
    check(rules.delay_compensated(LR, 0.5, within_group=True), Weighted(0.5, within_group=True))


def test_equal_weights_are_the_mean_bit_for_bit() -> None:
    """Of seven, 1/7 of each would round otherwise; of one there is nothing to weigh."""
    for rule in (
        rules.sgd(LR, 0.9),
        rules.delay_compensated(LR, within_group=True),
        rules.dana(LR),
    ):
        grads = torch.randn(7, 9, generator=torch.Generator().manual_seed(1))
        theta = torch.zeros(9)
        group = [Arrived(w, grad, theta, 0) for w, grad in enumerate(grads)]
        ends = []
        for weights in ((), (1 / 7,) * 7):
            shard = Shard(rule, theta, tg.FunctionTask(theta, None).layout)  # type: ignore[arg-type]
            shard.apply(group, 1.0, None, weights)
            shard.apply(group[:1], 1.0, None, (1.0,) if weights else ())
            ends.append(shard.theta)
        assert torch.equal(*ends)


@pytest.mark.parametrize("name", ["dana", "dana_sa", "dana_ga"])
def test_dana_with_unequal_weights_is_refused_by_name(name: str) -> None:
    order = grouped_order(4, 3, WORKERS)
    schedule = weighted(tg.Schedule.from_order(order, WORKERS, tg.SoftSync(size=3)))
    with pytest.raises(ValueError, match=r"SoftSync lets some gradients .* Dana keeps numbers"):
        tg.execute(schedule, task(), rules.RULES[name](LR), engine="exact")
    same = replace(schedule, group_weights=np.repeat(1 / 3, len(schedule.group_rows)))
    tg.execute(same, task(), rules.RULES[name](LR), engine="exact")


def test_a_rule_of_ones_own_that_knows_no_weights_is_refused() -> None:
    class Old(tg.Rule):
        def apply(self, theta, state, owns, slots, pushes, now, layout):  # type: ignore[no-untyped-def, override]
            return super().apply(theta, state, owns, slots, pushes, now, layout)

    assert not Old(LR, rules.Sgd()).takes_weights


def test_the_fast_engine_leaves_weights_to_the_exact_one() -> None:
    told: list[str] = []
    order = grouped_order(4, 3, WORKERS)
    schedule = weighted(tg.Schedule.from_order(order, WORKERS, tg.SoftSync(size=3)))
    tg.execute(schedule, task(), rules.sgd(LR), engine="fast", say=told.append)
    assert any("count for more or less" in line for line in told), told
