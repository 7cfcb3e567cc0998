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
from tests.rules.reference_cases import ALL, CASES, DECAYED, LR, Twin
from tests.rules.reference_server import Outcome, reference_run

WORKERS = 3
ARRIVALS = 90
LARGEST_DIFFERENCE = 1e-12
LAYOUT = Layout(("weight", "bias"), ((2, 2), (3,)))
THETA0 = [0.9, -0.4, 0.3, 1.2, -0.7, 0.05, -1.1]


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
) -> tuple[tg.Run, Outcome]:
    """Every `group` gradients make an update: 1 asynchronous, all synchronous, else in between."""
    order = grouped_order(seed, group, workers)
    policy: Policy = tg.SoftSync(groups=workers // group)
    if group == 1:
        order, policy = random_order(seed), tg.Async()
    elif group == workers:
        policy = tg.Sync()
    schedule = tg.Schedule.from_order(order, workers, policy)
    work = tg.OneGradient(clip_norm=clip)
    run = tg.execute(schedule, task(), rule, engine="exact", work=work)
    expected = reference_run(
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
        run = reference_run(twin(), THETA0, gradient, random_order(1), 3, constant, LR)
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
    clipped, _ = compare(rule, twin, seed=6, clip=1.0)
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
