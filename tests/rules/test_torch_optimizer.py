"""Any optimizer of torch on the server: its own bits, refusals by name, checkpoints, shards."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.rules import torch_optimizer
from tardigrad.tasks import Turn
from tests.rules.test_one_worker import alone, module_task

STEPS = 60
OPTIONS: dict[type[optim.Optimizer], dict[str, Any]] = {
    optim.ASGD: {"t0": 20},
    optim.Adadelta: {},
    optim.Adafactor: {},
    optim.Adagrad: {"initial_accumulator_value": 0.1, "lr_decay": 0.01},
    optim.Adam: {"amsgrad": True},
    optim.AdamW: {"weight_decay": 0.1},
    optim.Adamax: {},
    optim.NAdam: {"betas": [0.8, 0.99]},
    optim.RAdam: {"weight_decay": 0.01, "decoupled_weight_decay": True},
    optim.RMSprop: {"centered": True, "momentum": 0.9},
    optim.Rprop: {},
    optim.SGD: {"momentum": 0.9, "dampening": 0.3},
}
NOT_ALWAYS = {optim.LBFGS, optim.SparseAdam, optim.Muon}
"""Refused, but Muon for matrices alone."""
LR = 0.01


def matrix_task() -> tg.FunctionTask:
    """One whose parameters are two matrices."""
    layout = Layout(("a", "b"), ((5, 7), (7, 3)))

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        return torch.sin(3 * view + step) + 0.3 * view

    return tg.FunctionTask(torch.linspace(-1, 1, layout.size), grad, layout)


def followed(task: tg.FunctionTask, kind: type[optim.Optimizer], steps: int) -> Tensor:
    """An ordinary loop of torch's."""
    params = [nn.Parameter(t.clone()) for t in task.layout.unflatten(task.start()).values()]
    make: Any = kind
    optimizer = make(params, lr=LR)
    for step in range(steps):
        theta = torch.cat([p.detach().flatten() for p in params])
        grad = task.gradient(theta, Turn(0, step, step)).grad
        for param, part in zip(params, task.layout.unflatten(grad).values(), strict=True):
            param.grad = part.clone()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in params])


def test_no_optimizer_of_torchs_is_forgotten() -> None:
    found = {k for k in vars(optim).values() if isinstance(k, type)}
    found = {k for k in found if issubclass(k, optim.Optimizer) and k is not optim.Optimizer}
    assert found == set(OPTIONS) | NOT_ALWAYS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("kind", OPTIONS, ids=lambda k: k.__name__)
def test_one_worker_is_torchs_own_loop(kind: type[optim.Optimizer], dtype: torch.dtype) -> None:
    task, module = module_task(dtype)
    make: Any = kind
    optimizer = make(module.parameters(), lr=LR, **OPTIONS[kind])
    for step in range(STEPS):
        inputs, targets = task.batch(Turn(0, step, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    trained = torch.cat([p.detach().flatten() for p in module.parameters()])
    rule = torch_optimizer(kind, LR, **OPTIONS[kind])
    run = tg.execute(alone(tg.Async(), STEPS), task, rule, engine="exact")
    assert torch.equal(run.params, trained)


def test_muon_is_torchs_own_for_matrices() -> None:
    task = matrix_task()
    run = tg.execute(alone(tg.Async(), 20), task, torch_optimizer(optim.Muon, LR), engine="exact")
    assert torch.equal(run.params, followed(task, optim.Muon, 20))


def test_a_rate_schedule_is_followed() -> None:
    task = matrix_task()
    params = task.start().requires_grad_()
    optimizer = optim.RAdam([params], lr=1.0)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = LR * 0.1 ** (step >= 30)
        params.grad = task.gradient(params.detach().clone(), Turn(0, step, step)).grad
        optimizer.step()
    rule = torch_optimizer(optim.RAdam, lr=tg.rates.step(LR, (30,)))
    run = tg.execute(alone(tg.Async(), STEPS), task, rule, engine="exact")
    assert torch.equal(run.params, params.detach())


@pytest.mark.parametrize("kind", [optim.NAdam, optim.ASGD, optim.Adafactor])
def test_a_resumed_run_has_the_same_bits(kind: type[optim.Optimizer], tmp_path: Path) -> None:
    task, _ = module_task(torch.float32)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=3), 40, shards=2)
    rule = torch_optimizer(kind, LR)
    whole = tg.execute(schedule, task, rule, shard_by="tensor", engine="exact")

    class Killed(Exception):
        pass

    def kill(tick: Any) -> None:
        if tick.updates == 23:
            raise Killed

    options: dict[str, Any] = {"engine": "exact", "shard_by": "tensor"}
    saving = tg.Checkpoints(tmp_path, every=9)
    with pytest.raises(Killed):
        tg.execute(schedule, task, rule, watch=kill, checkpoints=saving, **options)
    saving = tg.Checkpoints(tmp_path, resume=True)
    again = tg.execute(schedule, task, rule, checkpoints=saving, **options)
    assert torch.equal(again.params, whole.params)


@pytest.mark.parametrize("kind", [k for k in OPTIONS if k is not optim.Adafactor])
def test_shards_that_cut_tensors_change_no_bit(kind: type[optim.Optimizer]) -> None:
    runs = []
    for shards in (1, 3):
        schedule = tg.schedule(tg.Sync(), tg.Constant(workers=2), 30, shards=shards)
        rule = torch_optimizer(kind, LR, **OPTIONS[kind])
        runs.append(tg.execute(schedule, matrix_task(), rule, engine="exact").params)
    assert torch.equal(*runs)


class Counts(optim.SGD):
    """Keeps a plain number in its state, which its step depends on."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                seen = self.state[p].setdefault("seen", 0)
                p.grad /= 1 + seen
                self.state[p]["seen"] = seen + 1
        return super().step(closure)


class Forgets(optim.SGD):
    """Keeps a number outside of its state."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
        return super().step(closure)


def test_numbers_that_an_optimizer_counts_go_on() -> None:
    task = matrix_task()
    run = tg.execute(alone(tg.Async(), 20), task, torch_optimizer(Counts, LR), engine="exact")
    assert torch.equal(run.params, followed(task, Counts, 20))


def test_what_is_kept_outside_of_the_state_is_refused() -> None:
    with pytest.raises(ValueError, match="Forgets keeps something that changes outside"):
        tg.execute(alone(tg.Async(), 3), matrix_task(), torch_optimizer(Forgets, LR))


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "closure": (optim.LBFGS, {}, "torch.optim.LBFGS evaluates the loss again .* use torch.optim"),
    "sparse": (optim.SparseAdam, {}, "torch.optim.SparseAdam takes sparse gradients"),
    "a name": ("NAdam", {}, r"must be a class such as torch.optim.NAdam, got 'NAdam'"),
    "option": (optim.Adam, {"beta": 0.9}, "Adam does not take this: .*'beta'"),
    "value": (optim.Adam, {"eps": -1.0}, "Adam does not take this: Invalid epsilon"),
    "params": (optim.Adam, {"params": []}, "params are the model's"),
    "unhashable": (optim.Adam, {"eps": {}}, "options must be plain values"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused_by_name(name: str) -> None:
    kind, options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        torch_optimizer(kind, LR, **options)


def test_muon_refuses_a_model_with_biases() -> None:
    task, _ = module_task(torch.float32)
    with pytest.raises(ValueError, match=r"Muon does not take this: .*2D"):
        tg.execute(alone(tg.Async(), 3), task, torch_optimizer(optim.Muon, LR))


@pytest.mark.parametrize("kind", [optim.Muon, optim.Adafactor])
def test_optimizers_of_whole_tensors_refuse_slices(kind: type[optim.Optimizer]) -> None:
    rule = torch_optimizer(kind, LR)
    with pytest.raises(ValueError, match=f"{kind.__name__} looks at whole tensors"):
        tg.simulate(matrix_task(), rule, cluster=tg.Gamma(workers=2), updates=4, shards=3)


def test_the_fast_engine_makes_its_updates_one_by_one_and_says_so() -> None:
    task, _ = module_task(torch.float64)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=3), 30)
    rule, said = torch_optimizer(optim.NAdam, LR), list[str]()
    fast = tg.execute(schedule, task, rule, engine="fast", say=said.append)
    exact = tg.execute(schedule, task, rule, engine="exact")
    assert (fast.params - exact.params).abs().max() < 1e-10
    assert any("updates one by one" in line for line in said), said
