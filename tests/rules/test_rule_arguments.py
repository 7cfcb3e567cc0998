"""Bad arguments of rules are refused by name, before anything runs."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad import rules

unchecked: Any = rules  # calls that a type checker would refuse


def scaled(by: Any) -> tg.Rule:
    return replace(rules.sgd(0.1), rate_scale=by)


BAD = [
    (lambda: rules.sgd(0.0), "lr must be greater than 0"),
    (lambda: rules.sgd(-0.1), "lr must be greater than 0"),
    (lambda: unchecked.sgd("0.1"), "lr must be a finite number, got '0.1'"),
    (lambda: rules.sgd(0.1, momentum=math.nan), "momentum must be a finite number"),
    (lambda: rules.sgd(0.1, nesterov=True), "nesterov=True needs a momentum"),
    (lambda: rules.sgd(0.1, weight_decay=-1.0), "weight_decay must not be negative"),
    (lambda: unchecked.sgd(0.1, weight_decay=None), "weight_decay must be a finite number"),
    (lambda: rules.adam(0.1, betas=(0.9, 1.0)), r"betas\[1\] must be in \[0, 1\), got 1.0"),
    (lambda: rules.adam(0.1, betas=(-0.1, 0.9)), r"betas\[0\] must be in \[0, 1\)"),
    (lambda: unchecked.adam(0.1, betas=(0.9,)), "betas must be two decays"),
    (lambda: unchecked.adam(0.1, betas=0.9), "betas must be two decays"),
    (lambda: rules.adam(0.1, eps=0.0), "eps must be greater than 0"),
    (lambda: rules.nadam(0.1, momentum_decay=-1.0), "momentum_decay must not be negative"),
    (lambda: unchecked.adamw(0.1, no_decay="*bias"), r'no_decay must be a list .*\["\*bias"\]'),
    (lambda: rules.adamw(0.1, weight_decay=0.0, no_decay=("b",)), "but weight_decay is 0 for all"),
    (lambda: scaled("*bias"), r'rate_scale must be factors .*{"head.\*": 10.0}, got .\*bias'),
    (lambda: scaled({"a": 0.0}), r"rate_scale\['a'\] must be greater than 0"),
    (lambda: scaled({"a": "x"}), r"rate_scale\['a'\] must be a finite number"),
    (lambda: rules.rmsprop(0.1, alpha=1.0), r"alpha must be in \[0, 1\)"),
    (lambda: unchecked.rmsprop(0.1, momentum="x"), "momentum must be a finite number"),
    (lambda: rules.adagrad(0.1, eps=-1.0), "eps must be greater than 0"),
    (lambda: unchecked.staleness_aware(0.1, on="both"), "on must be one of 'step', 'gradient'"),
    (
        lambda: unchecked.staleness_aware(0.1, staleness="plusone"),
        "staleness must be one of.*did you mean 'plus_one'",
    ),
    (lambda: rules.exponential_penalty(0.1, rate=-1.0), "rate must not be negative"),
    (lambda: rules.fasgd(0.1, gamma=1.0), r"gamma must be in \[0, 1\)"),
    (lambda: rules.fasgd(0.1, beta=2.0), r"beta must be in \[0, 1\)"),
    (lambda: rules.fasgd(0.1, eps=0.0), "eps must be greater than 0"),
    (lambda: unchecked.fasgd(0.1, estimator="mean"), "estimator must be one of"),
    (lambda: rules.delay_compensated(0.1, lam=-1.0), "lam must not be negative"),
    (
        lambda: rules.delay_compensated(0.1, mean_square_decay=1.0),
        r"mean_square_decay must be in \[0, 1\)",
    ),
    (lambda: unchecked.delay_compensated(0.1, mean_square="both"), "mean_square must be one of"),
    (lambda: rules.gap_aware(0.1, momentum=0.0), "momentum=0 has no Nesterov form"),
    (lambda: unchecked.gap_aware(0.1, per="tensor"), "per must be one of"),
    (lambda: unchecked.gap_aware(0.1, step="next"), "step must be one of"),
    (lambda: rules.gap_aware(0.1, max_lr=0.0), "max_lr must be greater than 0"),
    (lambda: rules.gap_aware(0.1, tolerance=-1.0), "tolerance must not be negative"),
    (lambda: rules.dana(0.1, momentum=math.inf), "momentum must be a finite number"),
    (
        lambda: unchecked.Rule(0.1, "sgd"),
        r"optimizer must be a tardigrad.rules.Optimizer, got 'sgd'",
    ),
    (lambda: unchecked.Rule(0.1, rules.Gap()), r"optimizer must be a .*Optimizer, got Gap\("),
    (
        lambda: unchecked.Rule(0.1, rules.Sgd(), rules.Sgd()),
        "correction must .* got Sgd",
    ),
    (lambda: tg.Rule(0.1, rules.Sgd(), ema=1.0), r"ema must be in \(0, 1\), got 1.0"),
    (lambda: tg.Rule(0.1, rules.Sgd(), clip_norm=0.0), "clip_norm must be greater than 0"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_bad_argument_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("optimizer", [rules.Adam(), rules.RmsProp(), rules.Sgd(), rules.Dana()])
def test_a_previous_step_that_nobody_keeps_is_refused(optimizer: rules.Optimizer[Any, Any]) -> None:
    """With the option that works instead."""
    rule = tg.Rule(0.1, optimizer, rules.Gap(step="previous"))
    task = tg.FunctionTask(torch.ones(2), lambda view, worker, step: view)
    with pytest.raises(ValueError, match='keeps no previous step: use step="tentative"'):
        tg.execute(tg.Schedule.from_order([0, 1], 2), task, rule)
    working = tg.Rule(0.1, optimizer, rules.Gap(step="tentative"))
    assert tg.execute(tg.Schedule.from_order([0, 1], 2), task, working).params.isfinite().all()


class StepsAsIn01(rules.Sgd):
    def step(  # type: ignore[override]
        self, theta: Any, state: Any, owns: Any, slots: Any, signals: Any, now: Any
    ) -> Any:
        return theta, state, owns


class StartsAsIn01(rules.Sgd):
    def start(self, theta: Any) -> Any:  # type: ignore[override]
        return rules.Nothing()


class PeeksAsIn01(rules.Sgd):
    def peek(self, state: Any, own: Any, grad: Any, now: Any) -> Any:  # type: ignore[override]
        return grad


class SendsAsIn01(rules.Sgd):
    def send(self, theta: Any, state: Any, now: Any) -> Any:  # type: ignore[override]
        return theta


class Passing(rules.Sgd):
    """However its methods are written, they take what comes."""

    def step(self, theta: Any, *rest: Any) -> Any:
        return super().step(theta, *rest)

    def start(self, theta: Any, layout: Any = None) -> Any:
        return super().start(theta, layout)

    @staticmethod
    def start_own(theta: Any, layout: Any) -> Any:
        return rules.Nothing()


@pytest.mark.parametrize(
    ("part", "write"),
    [
        (StepsAsIn01, r"def step\(self, theta, state, owns, slots, signals, now, layout\)"),
        (StartsAsIn01, r"def start\(self, theta, layout\)"),
        (PeeksAsIn01, r"def peek\(self, theta, state, owns, slots, grads, now, layout\)"),
        (SendsAsIn01, r"def send\(self, theta, state, now, gradients\)"),
    ],
)
def test_a_part_written_for_another_version_is_told_what_to_change(part: Any, write: str) -> None:
    with pytest.raises(ValueError, match=rf"{part.__name__}\.\w+ does not take .* {write}"):
        tg.Rule(0.1, part())


def test_a_part_may_take_what_it_is_called_with_in_its_own_way() -> None:
    task = tg.FunctionTask(torch.ones(2), lambda view, worker, step: view)
    schedule = tg.Schedule.from_order([0, 1], 2)
    own, given = (tg.execute(schedule, task, tg.Rule(0.1, o)) for o in (Passing(), rules.Sgd()))
    assert torch.equal(own.params, given.params)


def test_a_list_will_do_for_betas() -> None:
    assert unchecked.adam(0.1, betas=[0.8, 0.9]) == rules.adam(0.1, betas=(0.8, 0.9))


def test_fasgds_deviation_is_what_links_read() -> None:
    theta = torch.zeros(3)
    rule = rules.fasgd(0.1)
    layout = tg.tasks.FunctionTask(theta, lambda view, worker, step: view).layout
    deviation = rule.deviation(rule.start(theta, layout))
    assert deviation is not None
    assert torch.equal(deviation, torch.ones(3))
    magnitude = rules.fasgd(0.1, estimator="magnitude")
    deviation = magnitude.deviation(magnitude.start(theta, layout))
    assert deviation is not None
    assert torch.equal(deviation, torch.zeros(3))
    assert rules.sgd(0.1).deviation(rules.sgd(0.1).start(theta, layout)) is None


def test_a_pattern_that_fits_no_tensor_is_refused() -> None:
    task = tg.FunctionTask(torch.ones(3), lambda view, worker, step: view)
    rule = rules.adamw(0.1, no_decay=("thetta",))
    with pytest.raises(ValueError, match=r"no tensor .* called 'thetta'; did you mean 'theta'"):
        tg.simulate(task, rule, cluster=tg.Gamma(workers=1), updates=1)
    rule = replace(rules.sgd(0.1), rate_scale={"theta": 2.0, "head.*": 3.0})
    with pytest.raises(ValueError, match=r"rate_scale: no tensor of the model is called 'head"):
        tg.simulate(task, rule, cluster=tg.Gamma(workers=1), updates=1)
