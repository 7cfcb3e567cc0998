"""Every option has a value that does nothing; there the rule is exactly the one without it."""

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from root_penalty import RootPenalty
from tardigrad.rules import (
    Adam,
    DelayCompensation,
    ExponentialPenalty,
    Gap,
    RmsProp,
    Sgd,
    StalenessAware,
    adam,
    adam_ga,
    adamw,
    dana,
    dana_ga,
    dana_sa,
    delay_adaptive,
    delay_compensated,
    delayed_nesterov,
    exponential_penalty,
    fasgd,
    fedasync,
    gap_aware,
    nadam,
    pipemare,
    rmsprop,
    schedule_free,
    sgd,
    staleness_aware,
    staleness_weighted,
    weights,
)
from tests.rules.rule_table import TABLE

LR = 0.05
NEUTRAL: dict[str, tuple[tg.Rule, tg.Rule]] = {
    "momentum=0": (tg.Rule(LR, Sgd(0.0, keep_velocity=True)), sgd(LR)),
    "rmsprop momentum=0": (rmsprop(LR, momentum=0.0), rmsprop(LR)),
    "weight_decay=0": (sgd(LR, 0.9, True, weight_decay=0.0), sgd(LR, 0.9, True)),
    "adamw weight_decay=0": (adamw(LR, weight_decay=0.0), adam(LR)),
    "adamw no_decay of all": (adamw(LR, weight_decay=0.1, no_decay=("*",)), adam(LR)),
    "adam no_decay of all": (
        tg.Rule(LR, Adam(), weight_decay=0.1, no_decay=("*",)),
        adam(LR),
    ),
    "rate_scale=1": (replace(gap_aware(LR), rate_scale={"*": 1.0}), gap_aware(LR)),
    "rate_scale of all": (
        replace(gap_aware(LR / 4), rate_scale={"*": 4.0}),
        gap_aware(LR),
    ),
    "rate_scale of dana": (replace(dana_ga(LR / 4), rate_scale={"*": 4.0}), dana_ga(LR)),
    "lam=0": (delay_compensated(LR, lam=0.0, momentum=0.9), sgd(LR, 0.9)),
    "adaptive lam=0": (delay_compensated(LR, lam=0.0, adaptive=True), sgd(LR)),
    "server lam=0": (
        delay_compensated(LR, lam=0.0, adaptive=True, mean_square="server"),
        sgd(LR),
    ),
    "lam=0 before adam": (tg.Rule(LR, Adam(), DelayCompensation(0.0)), adam(LR)),
    "rate=0": (exponential_penalty(LR, rate=0.0, momentum=0.9), sgd(LR, 0.9)),
    "rate=0 before adam": (tg.Rule(LR, Adam(), ExponentialPenalty(0.0)), adam(LR)),
    "power=0": (tg.Rule(LR, Sgd(0.9), RootPenalty(0.0)), sgd(LR, 0.9)),
    "tolerance=∞": (gap_aware(LR, tolerance=1e30), sgd(LR, 0.9, True)),
    "tolerance=∞ layer": (gap_aware(LR, per="layer", tolerance=1e30), sgd(LR, 0.9, True)),
    "tolerance=∞ before adam": (
        tg.Rule(LR, Adam(), Gap(step="tentative", tolerance=1e30)),
        adam(LR),
    ),
    "tolerance=∞ before rmsprop": (
        tg.Rule(LR, RmsProp(momentum=0.9), Gap(tolerance=1e30)),
        rmsprop(LR, momentum=0.9),
    ),
    "max_lr=lr": (gap_aware(LR, max_lr=LR), gap_aware(LR)),
    "dana momentum=0": (dana(LR, 0.0), sgd(LR)),
    "dana_sa momentum=0": (dana_sa(LR, 0.0), staleness_aware(LR, on="gradient")),
    "dana_ga momentum=0": (
        dana_ga(LR, 0.0),
        gap_aware(LR, 0.0, nesterov=False, step="tentative"),
    ),
    "constant weight": (staleness_weighted(LR, weights.constant(), 0.9), sgd(LR, 0.9)),
    "constant weight before adam": (tg.Rule(LR, Adam(), weights.constant()), adam(LR)),
    "polynomial a=0": (staleness_weighted(LR, weights.polynomial(0.0), 0.9), sgd(LR, 0.9)),
    "hinge a=0": (staleness_weighted(LR, weights.hinge(a=0.0), 0.9), sgd(LR, 0.9)),
    "hinge b=∞": (staleness_weighted(LR, weights.hinge(b=1e9), 0.9), sgd(LR, 0.9)),
    "threshold=∞": (delay_adaptive(LR, 4, threshold=1e9, momentum=0.9), sgd(LR, 0.9)),
    "threshold=workers": (delay_adaptive(LR, 9, threshold=4), delay_adaptive(LR, 4)),
    "every=1": (delayed_nesterov(LR, every=1, momentum=0.9), sgd(LR, 0.9, True)),
    "ema": (tg.Rule(LR, Sgd(0.9), ema=0.99), sgd(LR, 0.9)),
    "constant rate": (sgd(tg.rates.step(LR, milestones=(10**6,))), sgd(LR)),
    "decay=1": (sgd(tg.rates.exponential(LR, decay=1.0)), sgd(LR)),
    "final=lr": (sgd(tg.rates.linear(LR, over=10, final=LR)), sgd(LR)),
    "warm-up of one worker": (
        sgd(tg.rates.warm_up(tg.rates.ConstantRate(LR), workers=1, by="updates")),
        sgd(LR),
    ),
}


def task(dtype: torch.dtype = torch.float32) -> tg.FunctionTask:
    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        return torch.sin(2 * view + worker + 0.2 * step) + 0.2 * view

    return tg.FunctionTask(torch.linspace(-2, 2, 21, dtype=dtype), grad)


def params(rule: tg.Rule, order: list[int], policy: tg.Async | tg.Sync, workers: int) -> Tensor:
    schedule = tg.Schedule.from_order(order, workers, policy)
    return tg.execute(schedule, task(), rule, engine="exact").params


def uneven(seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(4), weights=[8, 4, 2, 1], k=60)


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_neutral_value_changes_no_bit(name: str) -> None:
    with_it, without = NEUTRAL[name]
    for order, policy in ((uneven(), tg.Async()), ([0, 1, 2, 3] * 10, tg.Sync())):
        assert torch.equal(params(with_it, order, policy, 4), params(without, order, policy, 4))


ACTIVE: dict[str, tuple[tg.Rule, tg.Rule]] = {
    "momentum": (sgd(LR, 0.5), sgd(LR)),
    "lam": (delay_compensated(LR, lam=0.1), sgd(LR)),
    "rate": (exponential_penalty(LR, rate=0.1), sgd(LR)),
    "tolerance": (gap_aware(LR, tolerance=1.0), gap_aware(LR)),
    "max_lr": (gap_aware(LR, max_lr=2 * LR), gap_aware(LR)),
    "staleness": (staleness_aware(LR, staleness="max_one"), staleness_aware(LR)),
    "estimator": (fasgd(LR, estimator="printed"), fasgd(LR)),
    "adam_ga": (adam_ga(LR), adam(LR)),
    "decoupled": (nadam(LR, weight_decay=0.5, decoupled=True), nadam(LR, weight_decay=0.5)),
    "no_decay": (adamw(LR, weight_decay=0.5, no_decay=("*",)), adamw(LR, weight_decay=0.5)),
    "rate_scale": (replace(sgd(LR), rate_scale={"*": 2.0}), sgd(LR)),
    "momentum_decay": (nadam(LR, momentum_decay=0.1), nadam(LR)),
    "polynomial": (staleness_weighted(LR), sgd(LR)),
    "hinge": (staleness_weighted(LR, weights.hinge()), sgd(LR)),
    "hinge b": (
        staleness_weighted(LR, weights.hinge(b=2.0)),
        staleness_weighted(LR, weights.hinge()),
    ),
    "fedasync": (fedasync(LR), staleness_weighted(LR)),
    "threshold": (delay_adaptive(LR, 4, threshold=1.0), delay_adaptive(LR, 4)),
    "pipemare": (pipemare(LR, updates=40), sgd(LR)),
    "every": (delayed_nesterov(LR, every=4), delayed_nesterov(LR, every=3)),
    "c": (delayed_nesterov(LR, every=4, c=0.2), delayed_nesterov(LR, every=4)),
    "beta": (schedule_free(LR, beta=0.5), schedule_free(LR)),
}


@pytest.mark.parametrize("name", ACTIVE)
def test_other_values_do_change_the_run(name: str) -> None:
    one, other = ACTIVE[name]
    one_end, other_end = (params(r, uneven(), tg.Async(), 4) for r in (one, other))
    assert (one_end - other_end).abs().max() > 1e-4


def test_a_synchronous_group_has_no_delay_to_compensate() -> None:
    for name in (
        "staleness_aware",
        "exponential_penalty",
        "gap_aware",
        "delay_compensated",
        "staleness_weighted",
        "staleness_weighted hinge",
        "fedasync",
        "delay_adaptive",
        "pipemare",
    ):
        rule = TABLE[name]
        plain = replace(rule, correction=sgd(LR).correction)
        order = [0, 1, 2, 3] * 10
        ends = [params(r, order, tg.Sync(), 4) for r in (rule, plain)]
        assert torch.equal(*ends), name


def test_within_group_of_one_gradient_is_the_ordinary_rule() -> None:
    inside, outside = (
        delay_compensated(LR, lam=0.5, momentum=0.5, within_group=w) for w in (True, False)
    )
    ends = [params(r, uneven(), tg.Async(), 4) for r in (inside, outside)]
    assert torch.equal(*ends)


def test_staleness_on_the_step_or_the_gradient_is_the_same_without_momentum() -> None:
    """To rounding: (η/τ)·g against η·(g/τ)."""
    ends = [
        params(tg.Rule(LR, Sgd(), StalenessAware(on)), uneven(), tg.Async(), 4)
        for on in ("step", "gradient")
    ]
    assert torch.allclose(ends[0], ends[1], rtol=0, atol=1e-5)
