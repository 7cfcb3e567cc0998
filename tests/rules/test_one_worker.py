"""One worker: bit for bit the optimizer of torch, and every staleness rule its optimizer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tardigrad as tg
from root_penalty import root_penalty
from tardigrad import rules
from tardigrad.core import keys
from tardigrad.tasks import Data, Split, Turn
from tests.rules.rule_table import LR

STEPS = 300
Policies = pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()], ids=["async", "sync"])
Dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])

OPTIMIZERS: dict[str, tuple[tg.Rule, Callable[[Any], torch.optim.Optimizer]]] = {
    "sgd": (rules.sgd(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (rules.sgd(0.03, 0.9), lambda p: torch.optim.SGD(p, 0.03, 0.9)),
    "nesterov": (
        rules.sgd(0.03, 0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.03, 0.9, nesterov=True),
    ),
    "weight decay": (
        rules.sgd(0.03, 0.9, True, weight_decay=5e-4),
        lambda p: torch.optim.SGD(p, 0.03, 0.9, nesterov=True, weight_decay=5e-4),
    ),
    "adam": (rules.adam(0.002), lambda p: torch.optim.Adam(p, 0.002)),
    "adam options": (
        rules.adam(0.003, (0.8, 0.99), 1e-5, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, 0.003, (0.8, 0.99), 1e-5, weight_decay=0.01),
    ),
    "adamw": (rules.adamw(0.002), lambda p: torch.optim.AdamW(p, 0.002)),
    "adamw options": (
        rules.adamw(0.003, (0.8, 0.99), 1e-5, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.003, (0.8, 0.99), 1e-5, weight_decay=0.1),
    ),
    "nadam": (rules.nadam(0.002), lambda p: torch.optim.NAdam(p, 0.002)),
    "nadam options": (
        rules.nadam(0.003, (0.8, 0.99), 1e-5, 0.02, weight_decay=0.01),
        lambda p: torch.optim.NAdam(p, 0.003, (0.8, 0.99), 1e-5, 0.01, 0.02),
    ),
    "nadam decoupled": (
        rules.nadam(0.003, weight_decay=0.1, decoupled=True),
        lambda p: torch.optim.NAdam(p, 0.003, weight_decay=0.1, decoupled_weight_decay=True),
    ),
    "rmsprop": (rules.rmsprop(0.001), lambda p: torch.optim.RMSprop(p, 0.001)),
    "rmsprop options": (
        rules.rmsprop(0.0005, 0.9, 1e-4, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.RMSprop(p, 0.0005, 0.9, 1e-4, momentum=0.9, weight_decay=0.01),
    ),
    "adagrad": (rules.adagrad(0.02), lambda p: torch.optim.Adagrad(p, 0.02)),
    "adagrad weight decay": (
        rules.adagrad(0.02, weight_decay=0.01),
        lambda p: torch.optim.Adagrad(p, 0.02, weight_decay=0.01),
    ),
}


def alone(policy: Any, steps: int = STEPS) -> tg.Schedule:
    return tg.schedule(policy, tg.Gamma(workers=1), steps)


def wavy(dtype: torch.dtype, size: int = 133) -> tg.FunctionTask:
    """133 is no multiple of any vector width, so the scalar tails of kernels are tried too."""
    phase = torch.as_tensor(keys.normal(7, range(size)), dtype=dtype)
    start = torch.as_tensor(keys.normal(8, range(size)), dtype=dtype)

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        return torch.sin(3 * view + phase + 0.1 * step) + 0.3 * view

    return tg.FunctionTask(start, grad)


def module_task(dtype: torch.dtype) -> tuple[tg.ModuleTask, nn.Module]:
    inputs = torch.as_tensor(keys.normal(1, range(64 * 9)), dtype=dtype).reshape(64, 9)
    targets = torch.as_tensor(keys.integers(2, range(64), 3))
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(9, 11), nn.Tanh(), nn.Linear(11, 3)).to(dtype)
    data = Data(train=Split(inputs, targets))
    return tg.ModuleTask(module, "cross_entropy", data, batch_size=8), module


@Dtypes
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_function_is_followed_as_torch_follows_it(name: str, dtype: torch.dtype) -> None:
    rule, make = OPTIMIZERS[name]
    task = wavy(dtype)
    params = task.start().requires_grad_()
    optimizer = make([params])
    for step in range(STEPS):
        params.grad = task.gradient(params.detach().clone(), Turn(0, step, step)).grad
        optimizer.step()
    for policy in (tg.Async(), tg.Sync()):
        run = tg.execute(alone(policy), task, rule, engine="exact")
        assert torch.equal(run.params, params.detach())


@Dtypes
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_module_is_trained_as_torch_trains_it(name: str, dtype: torch.dtype) -> None:
    """An ordinary loop over the module's own tensors, however the flat vector lies in memory."""
    rule, make = OPTIMIZERS[name]
    task, module = module_task(dtype)
    optimizer = make(module.parameters())
    for step in range(STEPS):
        inputs, targets = task.batch(Turn(0, step, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    trained = torch.cat([p.detach().flatten() for p in module.parameters()])
    for policy in (tg.Async(), tg.Sync()):
        run = tg.execute(alone(policy), task, rule, engine="exact")
        assert torch.equal(run.params, trained)


@Dtypes
@pytest.mark.parametrize("decoupled", [False, True], ids=["decay", "decoupled"])
def test_tensors_without_decay_are_as_in_torchs_groups(decoupled: bool, dtype: torch.dtype) -> None:
    task, module = module_task(dtype)
    biases = [p for n, p in module.named_parameters() if n.endswith("bias")]
    rest = [p for n, p in module.named_parameters() if not n.endswith("bias")]
    groups: list[dict[str, Any]] = [{"params": rest}, {"params": biases, "weight_decay": 0.0}]
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind(groups, 0.003, weight_decay=0.1)
    for step in range(STEPS):
        inputs, targets = task.batch(Turn(0, step, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    trained = torch.cat([p.detach().flatten() for p in module.parameters()])
    rule = tg.Rule(0.003, rules.Adam(), weight_decay=0.1, decoupled=decoupled, no_decay=("*bias",))
    assert torch.equal(tg.execute(alone(tg.Async()), task, rule, engine="exact").params, trained)


@Dtypes
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tensors_with_rates_of_their_own_are_as_in_torchs_groups(
    name: str, dtype: torch.dtype
) -> None:
    """Factors that are no powers of two: the product is rounded once, as torch rounds its own."""
    rule, make = OPTIMIZERS[name]
    task, module = module_task(dtype)
    base = tg.rates.learning_rate(rule.lr).max
    scales = {"2.bias": 0.3, "2.*": 7.1}
    factors = {"2.bias": 0.3, "2.weight": 7.1}
    optimizer = make(
        [{"params": [p], "lr": base * factors.get(n, 1.0)} for n, p in module.named_parameters()]
    )
    for step in range(100):
        inputs, targets = task.batch(Turn(0, step, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    trained = torch.cat([p.detach().flatten() for p in module.parameters()])
    rule = replace(rule, rate_scale=scales)
    for shards in (1, 3):
        schedule = tg.schedule(tg.Async(), tg.Gamma(workers=1), 100, shards=shards)
        assert torch.equal(tg.execute(schedule, task, rule, engine="exact").params, trained)


def test_torchs_own_optimizers_have_rates_by_tensor_too() -> None:
    task, module = module_task(torch.float32)
    optimizer = torch.optim.RAdam(
        [{"params": [p], "lr": 0.02 if "bias" in n else 0.01} for n, p in module.named_parameters()]
    )
    for step in range(50):
        inputs, targets = task.batch(Turn(0, step, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    trained = torch.cat([p.detach().flatten() for p in module.parameters()])
    rule = replace(rules.torch_optimizer(torch.optim.RAdam, 0.01), rate_scale={"*bias": 2.0})
    run = tg.execute(alone(tg.Async(), 50), task, rule, engine="exact")
    assert torch.equal(run.params, trained)


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_learning_rate_schedule_is_followed_as_torch_follows_it(name: str) -> None:
    rule, make = OPTIMIZERS[name]
    base = tg.rates.learning_rate(rule.lr).max
    task = wavy(torch.float32)
    params = task.start().requires_grad_()
    optimizer = make([params])
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = base * 0.1 ** ((step >= 100) + (step >= 200))
        params.grad = task.gradient(params.detach().clone(), Turn(0, step, step)).grad
        optimizer.step()
    stepped = tg.Rule(tg.rates.step(base, (100, 200), factor=0.1), rule.optimizer, rule.correction)
    run = tg.execute(alone(tg.Async()), task, stepped, engine="exact")
    assert torch.equal(run.params, params.detach())


PENALISED: dict[str, tuple[tg.Rule, tg.Rule]] = {
    "staleness_aware": (rules.staleness_aware(LR), rules.sgd(LR)),
    "staleness_aware nesterov": (
        rules.staleness_aware(LR, 0.9, True),
        rules.sgd(LR, 0.9, True),
    ),
    "staleness_aware gradient": (
        rules.staleness_aware(LR, 0.9, on="gradient"),
        rules.sgd(LR, 0.9),
    ),
    "staleness_aware max_one": (
        rules.staleness_aware(LR, staleness="max_one"),
        rules.sgd(LR),
    ),
    "exponential_penalty": (rules.exponential_penalty(LR, 0.5, 0.9), rules.sgd(LR, 0.9)),
    "delay_compensated": (rules.delay_compensated(LR, momentum=0.9), rules.sgd(LR, 0.9)),
    "delay_compensated adaptive": (rules.delay_compensated(LR, adaptive=True), rules.sgd(LR)),
    "delay_compensated within_group": (
        rules.delay_compensated(LR, within_group=True, weight_decay=0.01),
        rules.sgd(LR, weight_decay=0.01),
    ),
    "gap_aware": (rules.gap_aware(LR), rules.sgd(LR, 0.9, True)),
    "gap_aware heavy ball": (rules.gap_aware(LR, nesterov=False), rules.sgd(LR, 0.9)),
    "gap_aware momentum 0": (rules.gap_aware(LR, 0.0, nesterov=False), rules.sgd(LR)),
    "gap_aware tentative": (rules.gap_aware(LR, step="tentative"), rules.sgd(LR, 0.9, True)),
    "gap_aware layer": (rules.gap_aware(LR, per="layer"), rules.sgd(LR, 0.9, True)),
    "gap_aware global": (rules.gap_aware(LR, per="global"), rules.sgd(LR, 0.9, True)),
    "adam_sa": (rules.adam_sa(LR), rules.adam(LR)),
    "adam_ga": (rules.adam_ga(LR, weight_decay=0.01), rules.adam(LR, weight_decay=0.01)),
    "dana_sa": (rules.dana_sa(LR), rules.dana(LR)),
    "root_penalty": (root_penalty(LR, momentum=0.9), rules.sgd(LR, 0.9)),
    "staleness_weighted": (rules.staleness_weighted(LR, momentum=0.9), rules.sgd(LR, 0.9)),
    "staleness_weighted hinge": (
        rules.staleness_weighted(LR, rules.weights.hinge(), 0.9, True),
        rules.sgd(LR, 0.9, True),
    ),
    "polynomial weights, adam": (
        tg.Rule(LR, rules.Adam(), rules.weights.polynomial()),
        rules.adam(LR),
    ),
    "fedasync": (rules.fedasync(LR), rules.sgd(LR)),
    "delay_adaptive": (rules.delay_adaptive(LR, 1, momentum=0.9), rules.sgd(LR, 0.9)),
    "pipemare": (rules.pipemare(LR, 50, 0.9, True), rules.sgd(LR, 0.9, True)),
    "delayed_nesterov": (rules.delayed_nesterov(LR, every=1), rules.sgd(LR, 0.9, True)),
    "delayed_nesterov c": (
        rules.delayed_nesterov(LR, 1, 0.6, c=0.3, weight_decay=0.01),
        rules.sgd(LR, 0.6, True, weight_decay=0.01),
    ),
    "delay compensation, adam": (
        tg.Rule(LR, rules.Adam(), rules.DelayCompensation()),
        rules.adam(LR),
    ),
    "gap, rmsprop": (
        tg.Rule(LR, rules.RmsProp(momentum=0.9), rules.Gap()),
        rules.rmsprop(LR, momentum=0.9),
    ),
}


@Policies
@Dtypes
@pytest.mark.parametrize("name", PENALISED)
def test_a_staleness_rule_is_its_optimizer(name: str, dtype: torch.dtype, policy: Any) -> None:
    rule, optimizer = PENALISED[name]
    schedule = alone(policy, 100)
    runs = [tg.execute(schedule, wavy(dtype), r, engine="exact") for r in (rule, optimizer)]
    assert torch.equal(runs[0].params, runs[1].params)


def test_every_staleness_rule_is_held_to_its_optimizer() -> None:
    own_law = {"fasgd", "dana", "dana_ga", "schedule_free"}  # a deviation, and views that are not θ
    plain = {"sgd", "adam", "adamw", "nadam", "rmsprop", "adagrad", "muon"}
    assert {name.split()[0] for name in PENALISED} >= set(rules.RULES) - own_law - plain


def bowl() -> tg.FunctionTask:
    """Convex, so that two ways of rounding one trajectory stay together."""

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        return torch.tanh(view + 0.1 * step) + 0.3 * view

    return tg.FunctionTask(wavy(torch.float64).start(), grad)


def sent_by(rule: tg.Rule, steps: int) -> list[Tensor]:
    """What one worker was sent, by update, in float64."""
    task, views = bowl(), []

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        views.append(view)
        return task.gradient(view, Turn(worker, step, step)).grad

    watched = tg.FunctionTask(task.start(), grad)
    tg.execute(alone(tg.Async(), steps), watched, rule, engine="exact")
    return views


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_what_dana_sends_follows_nesterov(momentum: float) -> None:
    sent = sent_by(rules.dana(0.02, momentum), 100)
    task = bowl()
    params = task.start().requires_grad_()
    optimizer = torch.optim.SGD([params], 0.02, momentum, nesterov=True)
    for step, view in enumerate(sent):
        assert (view - params.detach()).abs().max() <= 1e-12
        params.grad = task.gradient(params.detach().clone(), Turn(0, step, step)).grad
        optimizer.step()


def test_dana_ga_sees_a_gap_even_alone() -> None:
    """Its worker stands at the look-ahead, ηγ v ahead of θ: so it is not dana."""
    ends = [sent_by(rule, 20)[-1] for rule in (rules.dana(0.02), rules.dana_ga(0.02))]
    assert (ends[0] - ends[1]).abs().max() > 1e-3
    # Without momentum there is no look-ahead, hence no gap.
    ends = [sent_by(rule, 20)[-1] for rule in (rules.dana(0.02, 0.0), rules.dana_ga(0.02, 0.0))]
    assert torch.equal(ends[0], ends[1])
