"""Every rule and option against its slow twin, in float64, on random orders of three workers."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.layout import Layout
from tardigrad.policies import Policy
from tardigrad.rules import rates
from tests.rules import references as ref
from tests.rules.lamb import Lamb

WORKERS = 3
ARRIVALS = 90
LARGEST_DIFFERENCE = 1e-12
LAYOUT = Layout(("weight", "bias"), ((2, 2), (3,)))
PARTS = [(0, 4), (4, 7)]
ROWS = [(0, 2), (2, 4), (4, 7)]
THETA0 = [0.9, -0.4, 0.3, 1.2, -0.7, 0.05, -1.1]
LR = 0.06


def gradient(view: list[float], worker: int, step: int) -> list[float]:
    """Not linear in the view, coupled between parameters, different for every worker and step."""
    out = []
    for i, x in enumerate(view):
        phase = 0.7 * worker + 0.31 * step + i
        out.append(
            math.sin(1.3 * x + phase)
            + 0.4 * x**3 / (1 + x * x)
            + 0.2 * math.tanh(view[i - 1])
            + 0.1 * (worker - 1)
        )
    return out


def task() -> tg.FunctionTask:
    def grad(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        return torch.tensor(gradient(view.tolist(), worker, step), dtype=view.dtype)

    return tg.FunctionTask(torch.tensor(THETA0, dtype=torch.float64), grad, layout=LAYOUT)


def random_order(seed: int) -> list[int]:
    """Uneven on purpose, so that delays differ."""
    return random.Random(seed).choices(range(WORKERS), weights=[5, 2, 1], k=ARRIVALS)


def grouped_order(seed: int, group: int, workers: int) -> list[int]:
    """The same where a worker waits until its group is applied."""
    draw = random.Random(seed)
    order: list[int] = []
    waiting: list[int] = []
    while len(order) < ARRIVALS:
        free = [w for w in range(workers) if w not in waiting]
        waiting.append(draw.choices(free, weights=[workers - w for w in free])[0])
        order.append(waiting[-1])
        if len(waiting) == group:
            waiting = []
    return order


Twin = Callable[[], ref.Reference]

CASES: dict[str, tuple[tg.Rule, Twin]] = {
    "sgd": (rules.sgd(LR), ref.HeavyBall),
    "sgd momentum": (rules.sgd(LR, momentum=0.9), lambda: ref.HeavyBall(0.9)),
    "sgd negative momentum": (rules.sgd(LR, momentum=-0.4), lambda: ref.HeavyBall(-0.4)),
    "sgd nesterov": (
        rules.sgd(LR, momentum=0.8, nesterov=True),
        lambda: ref.HeavyBall(0.8, nesterov=True),
    ),
    "adam": (rules.adam(LR), ref.AdamLike),
    "adam betas eps": (
        rules.adam(LR, betas=(0.8, 0.95), eps=1e-3),
        lambda: ref.AdamLike(betas=(0.8, 0.95), eps=1e-3),
    ),
    "adamw": (rules.adamw(LR), ref.AdamW),
    "adamw no_decay": (
        rules.adamw(LR, weight_decay=0.2, no_decay=("bias",)),
        lambda: ref.AdamW(decay=0.2, spared=range(4, 7)),
    ),
    "decoupled, staleness": (
        tg.Rule(LR, rules.Adam(), rules.StalenessAware("gradient"), 0.1, decoupled=True),
        lambda: ref.AdamW("staleness", 0.1),
    ),
    "nadam": (rules.nadam(LR), ref.Nadam),
    "nadam betas eps": (
        rules.nadam(LR, (0.8, 0.95), 1e-3, momentum_decay=0.05),
        lambda: ref.Nadam(betas=(0.8, 0.95), eps=1e-3, psi=0.05),
    ),
    "staleness, nadam": (
        tg.Rule(LR, rules.NAdam(), rules.StalenessAware("gradient")),
        lambda: ref.Nadam("staleness"),
    ),
    "rmsprop": (rules.rmsprop(LR), ref.RmsProp),
    "rmsprop momentum": (
        rules.rmsprop(LR, alpha=0.9, eps=1e-6, momentum=0.9),
        lambda: ref.RmsProp(0.9, 1e-6, 0.9),
    ),
    "adagrad": (rules.adagrad(LR), ref.AdaGrad),
    "adagrad eps": (rules.adagrad(LR, eps=0.01), lambda: ref.AdaGrad(0.01)),
    "staleness_aware": (rules.staleness_aware(LR), ref.StalenessAware),
    "staleness_aware momentum": (
        rules.staleness_aware(LR, momentum=0.9),
        lambda: ref.StalenessAware(momentum=0.9),
    ),
    "staleness_aware nesterov": (
        rules.staleness_aware(LR, momentum=0.9, nesterov=True),
        lambda: ref.StalenessAware(momentum=0.9, nesterov=True),
    ),
    "staleness_aware max_one": (
        rules.staleness_aware(LR, momentum=0.5, staleness="max_one"),
        lambda: ref.StalenessAware(staleness="max_one", momentum=0.5),
    ),
    "staleness_aware on gradient": (
        rules.staleness_aware(LR, momentum=0.9, on="gradient"),
        lambda: ref.StalenessAware("gradient", momentum=0.9),
    ),
    "staleness_aware on gradient nesterov": (
        rules.staleness_aware(LR, momentum=0.9, nesterov=True, on="gradient"),
        lambda: ref.StalenessAware("gradient", momentum=0.9, nesterov=True),
    ),
    "staleness_aware on gradient max_one": (
        rules.staleness_aware(LR, on="gradient", staleness="max_one"),
        lambda: ref.StalenessAware("gradient", "max_one"),
    ),
    "exponential_penalty": (
        rules.exponential_penalty(LR, rate=0.3),
        lambda: ref.ExponentialPenalty(0.3),
    ),
    "exponential_penalty nesterov": (
        rules.exponential_penalty(LR, rate=0.2, momentum=0.9, nesterov=True),
        lambda: ref.ExponentialPenalty(0.2, momentum=0.9, nesterov=True),
    ),
    "fasgd": (rules.fasgd(LR), ref.Fasgd),
    "fasgd gamma beta eps": (
        rules.fasgd(LR, gamma=0.8, beta=0.95, eps=1e-2),
        lambda: ref.Fasgd(0.8, 0.95, 1e-2),
    ),
    "fasgd printed": (
        rules.fasgd(LR, estimator="printed"),
        lambda: ref.Fasgd(estimator="printed"),
    ),
    "fasgd magnitude": (
        rules.fasgd(LR, estimator="magnitude"),
        lambda: ref.Fasgd(estimator="magnitude"),
    ),
    "delay_compensated": (rules.delay_compensated(LR), lambda: ref.DelayCompensated(0.04)),
    "delay_compensated momentum": (
        rules.delay_compensated(LR, lam=0.5, momentum=0.9),
        lambda: ref.DelayCompensated(0.5, momentum=0.9),
    ),
    "delay_compensated adaptive": (
        rules.delay_compensated(LR, adaptive=True),
        lambda: ref.DelayCompensated(2.0, adaptive=True),
    ),
    "delay_compensated adaptive server": (
        rules.delay_compensated(
            LR, lam=1.0, adaptive=True, mean_square_decay=0.8, mean_square="server"
        ),
        lambda: ref.DelayCompensated(1.0, adaptive=True, decay=0.8, mean_square="server"),
    ),
    "delay_compensated within_group": (
        rules.delay_compensated(LR, lam=0.7, within_group=True),
        lambda: ref.DelayCompensated(0.7, within_group=True),
    ),
    "delay_compensated within_group adaptive momentum": (
        rules.delay_compensated(LR, adaptive=True, momentum=0.5, within_group=True),
        lambda: ref.DelayCompensated(2.0, adaptive=True, within_group=True, momentum=0.5),
    ),
    "gap_aware": (rules.gap_aware(LR), ref.GapAware),
    "gap_aware heavy ball": (
        rules.gap_aware(LR, nesterov=False),
        lambda: ref.GapAware(nesterov=False),
    ),
    "gap_aware negative momentum": (
        rules.gap_aware(LR, momentum=-0.3),
        lambda: ref.GapAware(momentum=-0.3),
    ),
    "gap_aware momentum 0": (
        rules.gap_aware(LR, momentum=0.0, nesterov=False),
        lambda: ref.GapAware(0.0, nesterov=False),
    ),
    "gap_aware momentum 0 tentative": (
        rules.gap_aware(LR, momentum=0.0, nesterov=False, step="tentative"),
        lambda: ref.GapAware(0.0, nesterov=False, step="tentative"),
    ),
    "gap_aware tentative": (
        rules.gap_aware(LR, step="tentative"),
        lambda: ref.GapAware(step="tentative"),
    ),
    "gap_aware layer": (rules.gap_aware(LR, per="layer"), lambda: ref.GapAware(parts=PARTS)),
    "gap_aware layer tentative": (
        rules.gap_aware(LR, per="layer", step="tentative"),
        lambda: ref.GapAware(parts=PARTS, step="tentative"),
    ),
    "gap_aware global": (
        rules.gap_aware(LR, per="global"),
        lambda: ref.GapAware(parts=[(0, 7)]),
    ),
    "gap_aware global tentative": (
        rules.gap_aware(LR, per="global", step="tentative"),
        lambda: ref.GapAware(parts=[(0, 7)], step="tentative"),
    ),
    "gap_aware tolerance": (
        rules.gap_aware(LR, tolerance=1.5),
        lambda: ref.GapAware(tolerance=1.5),
    ),
    "gap_aware max_lr": (rules.gap_aware(LR, max_lr=0.3), lambda: ref.GapAware(max_lr=0.3)),
    "dana": (rules.dana(LR), lambda: ref.Dana("none")),
    "dana momentum": (rules.dana(LR, momentum=0.5), lambda: ref.Dana("none", 0.5)),
    "dana_sa": (rules.dana_sa(LR), lambda: ref.Dana("staleness")),
    "dana_ga": (rules.dana_ga(LR), lambda: ref.Dana("gap")),
    "adam_sa": (rules.adam_sa(LR), lambda: ref.AdamLike("staleness")),
    "adam_sa betas": (
        rules.adam_sa(LR, betas=(0.7, 0.9), eps=1e-4),
        lambda: ref.AdamLike("staleness", (0.7, 0.9), 1e-4),
    ),
    "adam_ga": (rules.adam_ga(LR), lambda: ref.AdamLike("gap")),
    "delay compensation, adam": (
        tg.Rule(LR, rules.Adam(), rules.DelayCompensation(0.3)),
        lambda: ref.DelayCompensatedAdam(0.3),
    ),
    "staleness, adagrad": (
        tg.Rule(LR, rules.AdaGrad(), rules.StalenessAware("gradient")),
        ref.StalenessAdaGrad,
    ),
    "gap, rmsprop momentum": (
        tg.Rule(LR, rules.RmsProp(momentum=0.9), rules.Gap()),
        lambda: ref.GapRmsProp(momentum=0.9),
    ),
    "lamb, by tensor": (tg.Rule(LR, Lamb()), lambda: ref.Lamb(PARTS)),
    "lamb, by row": (tg.Rule(LR, Lamb("row")), lambda: ref.Lamb(ROWS)),
    "lamb, after a penalty": (
        tg.Rule(LR, Lamb(), rules.StalenessAware("gradient")),
        lambda: ref.Lamb(PARTS, "staleness"),
    ),
    "lamb, after gaps of its own steps": (
        tg.Rule(LR, Lamb(), rules.Gap(step="tentative")),
        lambda: ref.Lamb(PARTS, "gap"),
    ),
}
DECAY = 0.05
DECAYED: dict[str, tuple[tg.Rule, Twin]] = {
    "sgd": (
        rules.sgd(LR, 0.9, True, weight_decay=DECAY),
        lambda: ref.HeavyBall(0.9, True, weight_decay=DECAY),
    ),
    "adam": (rules.adam(LR, weight_decay=DECAY), lambda: ref.AdamLike(weight_decay=DECAY)),
    "adamw": (rules.adamw(LR, weight_decay=DECAY), lambda: ref.AdamW(decay=DECAY)),
    "nadam": (rules.nadam(LR, weight_decay=DECAY), lambda: ref.Nadam(weight_decay=DECAY)),
    "rmsprop": (rules.rmsprop(LR, weight_decay=DECAY), lambda: ref.RmsProp(weight_decay=DECAY)),
    "adagrad": (rules.adagrad(LR, weight_decay=DECAY), lambda: ref.AdaGrad(weight_decay=DECAY)),
    "staleness_aware": (
        rules.staleness_aware(LR, weight_decay=DECAY),
        lambda: ref.StalenessAware(weight_decay=DECAY),
    ),
    "exponential_penalty": (
        rules.exponential_penalty(LR, 0.2, weight_decay=DECAY),
        lambda: ref.ExponentialPenalty(0.2, weight_decay=DECAY),
    ),
    "fasgd": (rules.fasgd(LR, weight_decay=DECAY), lambda: ref.Fasgd(weight_decay=DECAY)),
    "delay_compensated": (
        rules.delay_compensated(LR, adaptive=True, weight_decay=DECAY),
        lambda: ref.DelayCompensated(2.0, adaptive=True, weight_decay=DECAY),
    ),
    "gap_aware": (
        rules.gap_aware(LR, weight_decay=DECAY),
        lambda: ref.GapAware(weight_decay=DECAY),
    ),
    "dana": (rules.dana(LR, weight_decay=DECAY), lambda: ref.Dana("none", weight_decay=DECAY)),
    "dana_sa": (
        rules.dana_sa(LR, weight_decay=DECAY),
        lambda: ref.Dana("staleness", weight_decay=DECAY),
    ),
    "dana_ga": (rules.dana_ga(LR, weight_decay=DECAY), lambda: ref.Dana("gap", weight_decay=DECAY)),
    "adam_sa": (
        rules.adam_sa(LR, weight_decay=DECAY),
        lambda: ref.AdamLike("staleness", weight_decay=DECAY),
    ),
    "adam_ga": (
        rules.adam_ga(LR, weight_decay=DECAY),
        lambda: ref.AdamLike("gap", weight_decay=DECAY),
    ),
}
ALL = CASES | {f"{name} weight_decay": case for name, case in DECAYED.items()}


def constant(version: int) -> float:
    return LR


def compare(
    rule: tg.Rule,
    twin: Twin,
    seed: int,
    group: int = 1,
    workers: int = WORKERS,
    lr: Callable[[int], float] = constant,
    max_lr: float = LR,
    clip: float | None = None,
) -> tuple[tg.Run, ref.Outcome]:
    """Every `group` gradients make an update: 1 asynchronous, all synchronous, else in between."""
    order = grouped_order(seed, group, workers)
    policy: Policy = tg.SoftSync(groups=workers // group)
    if group == 1:
        order, policy = random_order(seed), tg.Async()
    elif group == workers:
        policy = tg.Sync()
    schedule = tg.Schedule.from_order(order, workers, policy)
    run = tg.execute(schedule, task(), rule, engine="exact")
    expected = ref.reference_run(
        twin(), THETA0, gradient, order, workers, lr, max_lr, clip=clip, group=group
    )
    assert schedule.delays.tolist() == expected.delays
    assert difference(run.params, expected.theta) <= LARGEST_DIFFERENCE
    # Neither stood still nor flew away: a comparison there would say nothing.
    assert 0.05 < difference(run.params, THETA0) < 100
    return run, expected


def difference(params: torch.Tensor, expected: list[float]) -> float:
    return (params - torch.tensor(expected, dtype=torch.float64)).abs().max().item()


@pytest.mark.parametrize("name", ALL)
def test_a_rule_equals_its_reference_asynchronously(name: str) -> None:
    rule, twin = ALL[name]
    for seed in (1, 2):
        compare(rule, twin, seed)


@pytest.mark.parametrize("name", ALL)
def test_a_rule_equals_its_reference_synchronously(name: str) -> None:
    rule, twin = ALL[name]
    compare(rule, twin, seed=3, group=3)


@pytest.mark.parametrize("name", ALL)
def test_a_rule_equals_its_reference_in_groups_of_different_ages(name: str) -> None:
    rule, twin = ALL[name]
    _, expected = compare(rule, twin, seed=4, group=2, workers=5)
    assert len(set(expected.delays)) > 4


def test_every_rule_has_a_reference_with_and_without_weight_decay() -> None:
    assert {name.split()[0] for name in CASES if "," not in name} == set(rules.RULES)
    assert set(DECAYED) == set(rules.RULES)


def test_the_references_tell_rules_apart() -> None:
    """No two cases end at the same place on an uneven order: each option does something."""
    ends: dict[str, list[float]] = {}
    for name, (_, twin) in ALL.items():
        if "within_group" in name:  # of one gradient: differs in groups only
            continue
        run = ref.reference_run(twin(), THETA0, gradient, random_order(1), 3, constant, LR)
        for other, end in ends.items():
            apart = max(abs(a - b) for a, b in zip(end, run.theta, strict=True))
            assert apart > 1e-6, (name, other)
        ends[name] = run.theta


RATES: dict[str, tuple[rates.LearningRate, Callable[[int], float], float]] = {
    "step": (
        rates.step(0.1, milestones=(20, 50), factor=0.3),
        lambda k: 0.1 * (1 if k < 20 else 0.3 if k < 50 else 0.09),
        0.1,
    ),
    "rising": (
        rates.step(0.01, milestones=(30,), factor=5.0),
        lambda k: 0.01 if k < 30 else 0.05,
        0.05,
    ),
    "linear": (
        rates.linear(0.1, over=60, final=0.02),
        lambda k: 0.1 - 0.08 * min(k, 60) / 60,
        0.1,
    ),
    "cosine": (
        rates.cosine(0.1, over=80),
        lambda k: 0.05 * (1 + math.cos(math.pi * min(k, 80) / 80)),
        0.1,
    ),
    "exponential": (
        rates.exponential(0.1, decay=0.5, over=40),
        lambda k: 0.1 * 0.5 ** (k / 40),
        0.1,
    ),
    "warm_up": (
        rates.warm_up(rates.step(0.08, (60,)), workers=4, over=40, by="samples"),
        lambda k: 0.08 * (0.1 if k >= 60 else 1) * (0.25 + 0.75 * min(k, 40) / 40),
        0.08,
    ),
}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["sgd", "gap_aware", "dana", "dana_ga", "adam_ga"])
def test_rules_follow_learning_rates(name: str, rate: str) -> None:
    """Buffers hold gradients, so a change of rate acts at once; the gap's C keeps the largest."""
    rule, twin = CASES[name]
    lr, formula, largest = RATES[rate]
    compare(replace(rule, lr=lr), twin, seed=4, lr=formula, max_lr=largest)


def test_samples_count_every_gradient_of_a_group() -> None:
    rule, twin = CASES["sgd"]
    lr = rates.linear(0.1, over=60, final=0.01, by="samples")
    compare(replace(rule, lr=lr), twin, 4, group=3, lr=lambda k: 0.1 - 0.09 * min(3 * k, 60) / 60)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("name", ["sgd nesterov", "dana_ga", "delay_compensated within_group"])
def test_the_running_average_of_parameters(name: str, group: int) -> None:
    rule, twin = CASES[name]
    run, expected = compare(replace(rule, ema=0.9), twin, seed=5, group=group)
    assert run.average is not None
    assert difference(run.average, expected.average) <= LARGEST_DIFFERENCE
    assert difference(run.average, expected.theta) > 1e-3


@pytest.mark.parametrize("name", ["sgd", "gap_aware", "adam_sa"])
def test_clipping_happens_before_the_push(name: str) -> None:
    rule, twin = CASES[name]
    clipped, _ = compare(replace(rule, clip_norm=1.0), twin, seed=6, clip=1.0)
    free, _ = compare(rule, twin, seed=6)
    assert not torch.allclose(clipped.params, free.params, atol=1e-3)


def test_the_gap_and_b_staleness_of_every_applied_gradient() -> None:
    """√mean (θ − view)², and ‖g(view) − g(θ)‖ on the same batch."""
    order = random_order(7)
    schedule = tg.Schedule.from_order(order, WORKERS)
    measured = tg.Evaluation(measures=("gap", "b_staleness"))
    run = tg.execute(schedule, task(), rules.sgd(LR), engine="exact", evaluation=measured)
    theta, views, steps = list(THETA0), [list(THETA0)] * WORKERS, [0] * WORKERS
    gaps, changes = [], []

    def distance(a: list[float], b: list[float]) -> float:
        return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))

    for worker in order:
        grad = gradient(views[worker], worker, steps[worker])
        gaps.append(distance(theta, views[worker]) / math.sqrt(len(theta)))
        changes.append(distance(grad, gradient(theta, worker, steps[worker])))
        theta = [t - LR * g for t, g in zip(theta, grad, strict=True)]
        views[worker] = theta
        steps[worker] += 1
    assert run.history.gap == pytest.approx(gaps, abs=1e-12)
    assert run.history.b_staleness == pytest.approx(changes, abs=1e-12)
