"""What a model does to its inputs alone may be done once to a whole data set, where that is the
same: it changes no bit."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import tardigrad as tg
from tardigrad.engine.fast.build_on_cpu import build_on_cpu
from tardigrad.engine.fast.cpu_stream import CpuStream
from tardigrad.engine.fast.input_prologue import keeps_elements_apart, split_off_prologue
from tardigrad.engine.job import Job
from tardigrad.tasks import Data, ModuleTask, Split
from tardigrad.tasks.module import initialised

DRAW = torch.Generator().manual_seed(0)
BYTES = torch.randint(0, 256, (2, 5, 12), generator=DRAW, dtype=torch.uint8)
WEIGHT = torch.randn(12, 3, generator=DRAW)
OF_COLUMNS, OF_ROWS = torch.randn(12, generator=DRAW), torch.randn(5, 1, generator=DRAW)
APART: dict[str, tuple[bool, Callable[[Tensor], Tensor]]] = {
    "scaled": (True, lambda x: x.float() / 255),
    "scaled by columns": (True, lambda x: (x.float() - OF_COLUMNS) * 0.1),
    "scaled by rows": (False, lambda x: x.float() * OF_ROWS),
    "less the batch's mean": (False, lambda x: x.float() - x.float().mean(1, keepdim=True)),
    "normalised over a sample": (False, lambda x: torch.softmax(x.float(), -1)),
    "running sums": (False, lambda x: x.float().cumsum(1)),
    "turned round": (False, lambda x: x.float().flip(1) * 2),
}


@pytest.mark.parametrize("name", APART)
def test_only_what_treats_each_element_alone_is_done_beforehand(name: str) -> None:
    apart, early = APART[name]
    traced = make_fx(lambda weight, x: early(x) @ weight)(WEIGHT, BYTES)
    prologue = split_off_prologue(traced, argument=1).prologue
    assert prologue is not None
    assert keeps_elements_apart(prologue) == apart


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.float32) - 33.0) * (1 / 78.0)


@cache
def of_bytes() -> ModuleTask:
    def make() -> nn.Module:
        return nn.Sequential(Scaled(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3))

    draw = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 256, (200, 12), generator=draw, dtype=torch.uint8)
    labels = torch.randint(0, 3, (200,), generator=draw)
    return ModuleTask(initialised(make, 0), "cross_entropy", Data(Split(inputs, labels)), 5)


def finished(updates: int, budget: int) -> tuple[CpuStream, Tensor, list[float]]:
    made = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=updates)
    job = Job.on_one_shard(made, of_bytes(), tg.rules.dana_ga(lr=0.05))
    execution = build_on_cpu(job, lambda line: None, budget, chunk=4)
    assert isinstance(execution, CpuStream)
    while not execution.finished:
        execution.advance_to(execution.total)
    return execution, execution.params, execution.history.loss


def test_samples_prepared_beforehand_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, theta, losses = finished(120, 2**30)
    assert prepared.prepares
    monkeypatch.setattr("tardigrad.engine.fast.compiled.AT_ONCE", 7)
    assert torch.equal(finished(120, 2**30)[1], theta)
    monkeypatch.setattr("tardigrad.engine.fast.build_on_cpu.PREPARED_BYTES", 200 * 12 * 4 - 1)
    other, again, same_losses = finished(120, 2**30)
    assert not other.prepares
    assert torch.equal(again, theta)
    assert same_losses == losses


def test_a_short_run_does_not_prepare_what_it_will_not_see() -> None:
    assert not finished(20, 2**30)[0].prepares
