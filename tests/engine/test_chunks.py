"""How many gradients are computed at a time, by what they take."""

import pytest
import torch
from torch import nn

import tardigrad as tg
from tardigrad.engine.fast.build_on_cpu import CACHE_BYTES, LARGEST_BYTES, MOST, suitable_chunk
from tardigrad.engine.fast.largest_tensor import largest_bytes
from tardigrad.engine.job import Job
from tardigrad.tasks import Data, Split

SAMPLES, WIDTH = 64, 512


def task(batch_size: int) -> tg.ModuleTask:
    """Few parameters, and WIDTH numbers of each sample in the middle."""
    draw = torch.Generator().manual_seed(0)
    data = Data(Split(torch.randn(SAMPLES, 4, generator=draw), torch.arange(SAMPLES) % 3))
    model = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 3))
    return tg.ModuleTask(model, "cross_entropy", data, batch_size)


def job(batch_size: int, updates: int = 40) -> Job:
    made = tg.schedule(tg.Async(), tg.Gamma(workers=16), updates)
    return Job.on_one_shard(made, task(batch_size), tg.rules.sgd(0.1))


@pytest.mark.parametrize("batch_size", [1, 16])
def test_the_largest_tensor_of_a_gradient_is_found(batch_size: int) -> None:
    weights = 4 * WIDTH
    assert largest_bytes(job(batch_size)) >= 4 * max(weights, batch_size * WIDTH)
    assert largest_bytes(job(batch_size)) <= 4 * max(5 * weights, batch_size * WIDTH)


def test_expanded_tensors_and_views_of_what_was_there_count_as_what_they_hold() -> None:
    there = torch.zeros(1_000_000)

    def followed(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        return view + view.sum().expand(1_000_000)[:3] + there.reshape(1000, 1000).T[0, :3]

    made = tg.schedule(tg.Async(), tg.Gamma(workers=2), 4)
    task = tg.FunctionTask(torch.zeros(3), followed)
    assert 0 < largest_bytes(Job.on_one_shard(made, task, tg.rules.sgd(0.1))) <= 64


def test_a_chunk_fits_the_cache_and_its_largest_tensor_the_limit() -> None:
    small = torch.zeros(1000)
    assert suitable_chunk(small) == MOST
    assert suitable_chunk(torch.zeros(CACHE_BYTES // 4 // 16)) == 16
    assert suitable_chunk(small, LARGEST_BYTES // MOST) == MOST
    assert suitable_chunk(small, LARGEST_BYTES // 8) == 8
    assert suitable_chunk(small, LARGEST_BYTES // 8 + 1) == 4
    assert suitable_chunk(small, 10 * LARGEST_BYTES) == 1


def test_large_activations_make_batches_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> int | None:
        ran = tg.execute(job(16).schedule, task(16), tg.rules.sgd(0.1), engine="fast")
        assert ran.provenance is not None
        return ran.provenance.chunk

    assert found() == MOST
    monkeypatch.setattr("tardigrad.engine.fast.build_on_cpu.LARGEST_BYTES", 3 * 16 * WIDTH * 4)
    assert found() == 2
