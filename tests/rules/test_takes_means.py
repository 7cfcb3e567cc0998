"""Which rules make of a group of gradients, all at θ and none late, what they make of its mean."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.core.trees import named
from tardigrad.rules import Adam, Correction, Now, Push, Raw, Rule, Sgd, Signal
from tardigrad.rules.rates import Progress
from tests.rules.rule_table import TABLE

LAYOUT = Layout(("a", "b"), ((4,), (2,)))


def updated(rule: Rule, groups: list[list[Tensor]]) -> list[Tensor]:
    """θ and the rule's state after these groups, each at θ itself."""
    theta = torch.linspace(-1, 2, 6, dtype=torch.float64)
    state = rule.start(theta, LAYOUT)
    for count, grads in enumerate(groups):
        owns = [rule.start_own(theta, LAYOUT)] * len(grads)
        pushes = [Push(grad, theta, torch.ones((), dtype=torch.float64)) for grad in grads]
        now = rule.scalars(Progress(updates=count, epoch_size=1)).tensors()
        theta, state, _ = rule.apply(theta, state, owns, range(len(grads)), pushes, now, LAYOUT)
    return [theta, *named(state, "").values()]


@pytest.mark.parametrize("name", [name for name, rule in TABLE.items() if rule.takes_means])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e9])
def test_what_a_rule_vouches_for_is_so(name: str, scale: float) -> None:
    draw = torch.Generator().manual_seed(0)
    drawn = scale * torch.randn(5, 3, 6, generator=draw, dtype=torch.float64)
    apart = updated(TABLE[name], [list(group) for group in drawn])
    together = updated(TABLE[name], [[group.mean(0)] for group in drawn])
    for mine, theirs in zip(apart, together, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_which_rules_vouch() -> None:
    rules = tg.rules
    for rule in (
        rules.sgd(0.1, momentum=0.9),
        rules.adam(0.1),
        rules.rmsprop(0.1),
        rules.adagrad(0.1),
        rules.fasgd(0.1),
        rules.gap_aware(0.1),
        rules.staleness_aware(0.1),
        rules.adam_sa(0.1),
        rules.exponential_penalty(0.1, rate=0.2),
        rules.delay_compensated(0.1, adaptive=True, mean_square="server"),
        replace(rules.sgd(0.1), weight_decay=0.1, ema=0.9),
    ):
        assert rule.takes_means
    for rule in (
        rules.dana(0.1),  # rows per worker
        rules.delay_compensated(0.1, adaptive=True),
        rules.delay_compensated(0.1, within_group=True),
        rules.adam_ga(0.1),  # Adam's tentative step is not linear
    ):
        assert not rule.takes_means


@dataclass(frozen=True)
class Mine(Correction[Any, Any]):
    def correct(
        self, theta: Tensor, state: Any, own: Any, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Any]:
        return Signal(push.grad, push.grad), own


class DerivedRaw(Raw):
    pass


class DerivedAdam(Adam):
    pass


class DerivedRule(Rule):
    pass


@dataclass(frozen=True)
class Vouching(Mine):
    takes_means = True


def test_a_class_of_ones_own_vouches_for_itself_or_not_at_all() -> None:
    lr = tg.rules.sgd(0.1).lr
    assert not Rule(lr, Sgd(), Mine()).takes_means
    assert not Rule(lr, Sgd(), DerivedRaw()).takes_means
    assert not Rule(lr, DerivedAdam()).takes_means
    assert not DerivedRule(lr, Sgd()).takes_means
    assert Rule(lr, Sgd(), Vouching()).takes_means
