"""Runs whose numbers stop being numbers, told by every engine, at the update and worker it was."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tardigrad as tg
from tardigrad.engine.execute import prepare
from tardigrad.engine.fast.cpu_general import CpuGeneral
from tardigrad.engine.fast.cpu_stream import CpuStream
from tardigrad.rules import fasgd, sgd
from tardigrad.tasks import Data, ModuleTask, Split

START = torch.arange(1.0, 5.0, dtype=torch.float64)


def without_loss(what: float, worker: int, step: int) -> tg.FunctionTask:
    """No loss; one number of one gradient is `what`."""

    def grad(view: Tensor, by: int, at: int) -> Tensor:
        out = view.clone()
        out[2] = what if (by, at) == (worker, step) else out[2]
        return out

    return tg.FunctionTask(START, grad)


def told(run: Any) -> tuple[int, int, str]:
    with pytest.raises(tg.Diverged) as raised:
        run()
    return raised.value.update, raised.value.worker, raised.value.what


@pytest.mark.parametrize("what", [math.nan, math.inf])
@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_a_gradient_that_is_no_number_is_told_where_there_is_no_loss(
    engine: Any, what: float
) -> None:
    made, task = tg.Schedule.from_order([0, 1] * 20, 2), without_loss(what, 1, 7)
    if engine == "fast":
        assert isinstance(prepare(made, task, sgd(0.1), "fast"), CpuGeneral)
    with pytest.raises(tg.Diverged, match=f"a gradient became {what} at update 15.*worker 1") as e:
        tg.execute(made, task, sgd(0.1), engine)
    assert (e.value.update, e.value.worker) == (15, 1)


@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_so_it_is_in_a_group_and_over_shards(engine: Any) -> None:
    task = without_loss(math.nan, 2, 3)
    for policy, shards in ((tg.Sync(), 1), (tg.Async(), 2)):
        made = tg.schedule(policy, tg.Gamma(workers=3), updates=30, shards=shards, seed=1)
        update, worker, what = told(lambda made=made: tg.execute(made, task, sgd(0.1), engine))
        assert (worker, what) == (2, "a gradient")
        groups = [
            g
            for g in range(made.groups)
            if [2, 3] in [[made.worker[r], made.step[r]] for r in made.group(g)]
        ]
        done = [int((made.group_shard[: groups[0]] == shard).sum()) for shard in range(shards)]
        assert update == min(done)


def test_so_it_is_where_a_link_reads_tensors() -> None:
    link = tg.BandwidthAware(c_push=0.01, c_pull=0.01)
    options: dict[str, Any] = {"cluster": tg.Gamma(workers=2), "updates": 60, "link": link}
    tg.simulate(without_loss(1.0, 1, 7), fasgd(0.01), **options)
    _, worker, what = told(
        lambda: tg.simulate(without_loss(math.nan, 1, 7), fasgd(0.01), **options)
    )
    assert (worker, what) == (1, "a gradient")


def test_gradients_in_hand_at_a_checkpoint_are_looked_at_again(tmp_path: Path) -> None:
    made, task = (
        tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=40),
        without_loss(math.nan, 1, 5),
    )
    options: dict[str, Any] = {"engine": "fast", "limits": tg.Limits(chunk=8)}
    saving = tg.Checkpoints(tmp_path, every=1)
    first = told(lambda: tg.execute(made, task, sgd(0.1), checkpoints=saving, **options))
    saving = tg.Checkpoints(tmp_path, resume=True)
    again = told(lambda: tg.execute(made, task, sgd(0.1), checkpoints=saving, **options))
    assert first == again
    assert first[2] == "a gradient"


@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_parameters_that_fly_away_are_told_without_evaluation(engine: Any) -> None:
    """The gradients stay finite: they do not depend on the view."""
    task = tg.FunctionTask(START, lambda view, worker, step: torch.full_like(view, 1e300))
    made = tg.Schedule.from_order([0] * 4, 1)
    with pytest.raises(tg.Diverged, match="a parameter became -inf"):
        tg.execute(made, task, sgd(1e9), engine)


class Rooted(nn.Module):
    """A norm of what a sample's first number multiplies: where that is 0, the norm's gradient is
    no number, though the loss is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        norm = (out * x[:, :1]).square().sum(1, keepdim=True).sqrt()
        return out + 0.1 * norm


def rooted() -> ModuleTask:
    inputs = torch.rand(50, 4, generator=torch.Generator().manual_seed(0)) + 0.1
    inputs[17, 0] = 0
    data = Data(Split(inputs, torch.arange(50) % 3))
    return ModuleTask(Rooted(), "cross_entropy", data, 1, dtype="float64", stochastic=False)


def test_a_module_whose_loss_is_finite_and_its_gradient_not() -> None:
    made, task = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=400), rooted()
    chosen = task.indices_of(made.worker, made.step, range(made.rows))[:, 0]
    assert F.cross_entropy(task.module(task.data.train.inputs[17:18]), torch.tensor([2])).isfinite()
    first = next(u for u, row in enumerate(made.group_rows.tolist()) if chosen[row] == 17)
    expected = (first, int(made.worker[made.group_rows[first]]), "a gradient")
    limits = tg.Limits(chunk=8)
    assert isinstance(prepare(made, task, sgd(0.01), "fast", limits=limits), CpuStream)
    assert told(lambda: tg.execute(made, task, sgd(0.01), "exact")) == expected
    assert told(lambda: tg.execute(made, task, sgd(0.01), "fast", limits=limits)) == expected


def test_the_last_update_of_a_run_is_looked_at_too() -> None:
    made, task = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=400), rooted()
    chosen = task.indices_of(made.worker, made.step, range(made.rows))[:, 0]
    first = next(u for u, row in enumerate(made.group_rows.tolist()) if chosen[row] == 17)
    ends = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=first + 1)
    for engine in ("exact", "fast"):
        assert told(lambda e=engine: tg.execute(ends, task, sgd(0.01), e))[0] == first
