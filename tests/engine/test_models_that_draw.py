"""Models that draw from the process's generators: repeatable, and nobody's streams are moved."""

import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tardigrad as tg
from tardigrad.rules import sgd
from tardigrad.tasks import Data, ModuleTask, Split, Turn
from tardigrad.tasks.module import initialised

RULE = sgd(lr=0.1, momentum=0.5)


class Drawing(nn.Module):
    """A perceptron whose forward pass draws in one of several ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        if self.how == "F.dropout":
            x = F.dropout(x, 0.5)  # in evaluation too
        elif self.how == "torch.rand":
            x = x * (1 + torch.rand(8, dtype=x.dtype))
        elif self.how == "random":
            x = x * 2 if random.random() < 0.5 else x
        elif self.how == "numpy":
            x = x * float(1 + np.random.rand())
        elif self.how == "numpy normal":
            x = x * float(1 + 0.1 * np.random.standard_normal())
        return self.second(x)


def noisy_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs * (1 + random.random()), targets)


def noisy_augment(inputs: Tensor, stream: int) -> Tensor:
    return inputs + 0.1 * torch.randn_like(inputs)


HOWS = ["F.dropout", "torch.rand", "random", "numpy", "numpy normal"]
CASES: dict[str, dict[str, Any]] = {how: {} for how in HOWS}
CASES |= {"loss": {"loss": noisy_loss}, "augment": {"augment": noisy_augment}}


def make(case: str, seed: int = 0) -> ModuleTask:
    """All samples are the same, so gradients at one view differ by what was drawn alone."""
    train = Split(torch.ones(40, 6), torch.zeros(40, dtype=torch.int64))
    data = Data(train, Split(torch.ones(5, 6), torch.arange(5) % 3))
    options = {"loss": "cross_entropy", **CASES[case]}
    module = initialised(lambda: Drawing(case), 0)
    return ModuleTask(module, data=data, batch_size=4, dtype="float64", seed=seed, **options)


def states() -> list[Any]:
    # The rest: the position, and a number in hand.
    name, key, *rest = cast(tuple[Any, ...], np.random.get_state())
    return [torch.get_rng_state().tolist(), random.getstate(), name, key.tolist(), rest]


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> str:
    """The generators stand somewhere, NumPy's with a number in hand."""
    torch.manual_seed(random.randrange(2**32))
    np.random.seed(random.randrange(2**32))
    np.random.standard_normal()
    return str(request.param)


def run(task: ModuleTask, engine: Any = "exact", **options: Any) -> tg.Run:
    made = tg.schedule(tg.Async(), tg.Gamma(workers=3), updates=30, seed=1)
    return tg.execute(made, task, RULE, engine, **options)


def test_two_runs_are_one_and_leave_the_callers_streams_alone(case: str) -> None:
    before = states()
    first = run(make(case), evaluation=10)
    assert states() == before
    torch.rand(3), random.random(), np.random.rand()
    second = run(make(case), evaluation=10)
    assert torch.equal(first.params, second.params)
    assert first.history.column("validation_loss") == second.history.column("validation_loss")
    assert not torch.equal(first.params, run(make(case, seed=1)).params)


def test_other_workers_and_steps_draw_other_numbers(case: str) -> None:
    task = make(case)
    turns = [Turn(worker, step, 0) for worker in range(4) for step in range(4)]
    grads = {tuple(task.gradient(task.start(), turn).grad.tolist()) for turn in turns}
    assert len(grads) == (2 if case == "random" else 16)
    again = task.gradient(task.start(), turns[5]._replace(row=7)).grad
    assert tuple(again.tolist()) in grads


def test_the_fast_engine_draws_the_same(case: str) -> None:
    before, said = states(), list[str]()
    fast, exact = run(make(case), "fast", say=said.append), run(make(case))
    assert states() == before
    assert (fast.params - exact.params).abs().max() <= 1e-9
    assert fast.history.loss == pytest.approx(exact.history.loss, abs=1e-9)
    if case not in ("augment", "F.dropout", "torch.rand"):
        assert any("generator" in line for line in said)


def test_a_run_goes_on_to_the_bit(case: str, tmp_path: Path) -> None:
    whole = run(make(case))

    def stop(tick: Any) -> None:
        if tick.updates == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(make(case), checkpoints=tg.Checkpoints(tmp_path, every=5), watch=stop)
    random.random(), torch.rand(1), np.random.rand()
    again = run(make(case), checkpoints=tg.Checkpoints(tmp_path, resume=True))
    assert torch.equal(again.params, whole.params)
    assert again.history.loss == whole.history.loss


@pytest.mark.parametrize("how", HOWS)
def test_evaluation_draws_the_same_every_time(how: str) -> None:
    task = make(how)
    before = states()
    found = [task.evaluate(task.start(), (), "validation") for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert states() == before


def test_a_gradient_function_may_draw_too() -> None:
    def noisy(view: Tensor, worker: int, step: int) -> Tensor:
        return view + torch.randn(4) * random.random() + float(np.random.rand())

    made = tg.schedule(tg.Async(), tg.Gamma(workers=3), updates=20)
    before = states()
    runs = [tg.execute(made, tg.FunctionTask(torch.ones(4), noisy), RULE) for _ in range(2)]
    assert states() == before
    assert torch.equal(runs[0].params, runs[1].params)
    other = tg.execute(made, tg.FunctionTask(torch.ones(4), noisy, seed=1), RULE)
    assert not torch.equal(runs[0].params, other.params)


class Seldom(nn.Module):
    """Draws only where the numbers say so, which the first batches may not show."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        if out.square().mean() > 1.0:
            out = out * random.random()
        return out


def test_a_model_that_draws_where_the_numbers_say_so_is_not_compiled() -> None:
    inputs = torch.linspace(0.1, 4, 240).reshape(40, 6)
    data = Data(Split(inputs, torch.arange(40) % 3))
    task = ModuleTask(initialised(Seldom, 0), "cross_entropy", data, 1, dtype="float64")
    said: list[str] = []
    fast = run(task, "fast", say=said.append)
    assert "gradients one by one" in said[0]
    assert torch.equal(fast.params, run(task, "fast").params)
    assert (fast.params - run(task).params).abs().max() <= 1e-9
