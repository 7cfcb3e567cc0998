"""Bad arguments of rules are refused by name, before anything runs."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad import rules

unchecked: Any = rules  # calls that a type checker would refuse
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
