"""The benchmarks of rules, growth and models: small ones, whose tables must hold together."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tardigrad.bench.growth import bench_growth
from tardigrad.bench.loops import engine_loop, perceptron
from tardigrad.bench.models import MODELS, Model, PlainLoop, bench_models, gpt
from tardigrad.bench.rules import CATALOGUE, bench_rules
from tardigrad.bench.stack import bench_stack
from tardigrad.clusters import Gamma
from tardigrad.policies import Async
from tardigrad.rules import RULES
from tardigrad.scheduling import schedule
from tardigrad.tasks import ModuleTask
from tardigrad.tasks.module import initialised


def test_rules_tells_which_have_no_kernel() -> None:
    names = ("sgd", "fasgd", "gap_aware, global")
    found = bench_rules(
        workers=4, batch_size=2, repeats=1, updates=20, rules={n: CATALOGUE[n] for n in names}
    )
    rows = {row["rule"]: row for row in found.data()["rows"]}
    assert list(rows) == list(names)
    assert rows["fasgd"]["updates are applied"] == "in windows"
    assert "linalg_vector_norm" in rows["gap_aware, global"]["updates are applied"]
    for row in rows.values():
        assert row["µs per update"] > 0
        assert 0.01 < row["÷ sgd"] < 1000


def test_every_rule_of_the_catalogue_is_measured() -> None:
    assert set(RULES) <= set(CATALOGUE)


def test_growth_finds_the_memory_that_views_take() -> None:
    found = bench_growth(workers=(10, 200), batch_size=1, updates=50, repeats=1)
    few, many = found.data()["rows"]
    view = 4 * perceptron(1, "cpu").layout.size / 2**20
    assert many["peak MiB"] - few["peak MiB"] > 0.9 * 190 * view
    assert 0.8 < many["peak MiB"] / many["predicted MiB"] < 1.4
    assert few["÷ λ=10"] == 1


def test_models_stand_beside_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def small() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Flatten(), Float(), torch.nn.Linear(3 * 32 * 32, 10), torch.nn.ReLU()
        )

    monkeypatch.setitem(MODELS, "small", Model(small, "cross_entropy", True, {"cpu": 8}))
    found = bench_models(models=("small",), batch_size=4, workers=3, repeats=1)
    (row,) = found.data()["rows"]
    assert row["model"] == "small, full: 3 workers, batches of 4"
    assert row["fast ÷ plain"] == pytest.approx(row["fast"] / row["plain"])
    with pytest.raises(ValueError, match="models must be one of"):
        bench_models(models=("ResNet-21",))


def test_the_largest_model_is_gpt_2() -> None:
    with torch.device("meta"):
        of_gpt = sum(p.numel() for p in MODELS["GPT-2 small"].make().parameters())
    assert of_gpt == 124_046_592  # GPT-2's 124.4 million, with half its context


@pytest.mark.stress  # most of a minute in the compiler
def test_a_language_model_stands_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = gpt(300, layers=1, heads=2, width=8, context=5)._replace(updates={"cpu": 4})
    assert tiny.data().train.inputs.dtype == torch.int32
    assert int(tiny.data().train.inputs.max()) == 299
    monkeypatch.setitem(MODELS, "tiny", tiny)
    entered: list[str] = []
    (row,) = bench_models(models=("tiny",), repeats=1, timing=noted(entered)).data()["rows"]
    assert row["model"] == "tiny, full: 8 workers, batches of 8"
    assert row["fast"] > 0
    assert entered == ["in", "out"]


@contextmanager
def noted(into: list[str]) -> Iterator[None]:
    into.append("in")
    yield
    into.append("out")


class Float(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float() / 255


def test_the_plain_loop_is_sgd_with_nesterov(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(
        lambda: torch.nn.Sequential(Float(), torch.nn.Flatten(), torch.nn.Linear(3072, 10)),
        "cross_entropy",
        True,
        {},
    )
    task = ModuleTask(initialised(model.make, 0), model.loss, model.data(), 4)
    loop = PlainLoop(model, task)
    chosen = torch.arange(4)
    monkeypatch.setattr(torch, "randint", lambda *size, **options: chosen)
    loop(3)
    theta, velocity = task.start(), torch.zeros_like(task.start())
    train = task.data.train
    for _ in range(3):
        _, pieces = task.backward(theta, train.inputs[chosen], train.targets[chosen])
        grad = torch.cat([piece.flatten() for piece in pieces])
        velocity = 0.9 * velocity + grad
        theta = theta - 0.001 * (grad + 0.9 * velocity)
    ours = torch.cat([p.detach().flatten() for p in loop.module.parameters()])
    torch.testing.assert_close(ours, theta, rtol=1e-5, atol=1e-7)


def test_a_slice_on_the_cpu_ends_with_its_batch() -> None:
    made = schedule(Async(), Gamma(workers=20), 200)
    run = engine_loop(made, perceptron(1, "cpu"), CATALOGUE["sgd"], "fast")
    made_now = run(10)
    assert made_now is not None
    assert 10 <= made_now < 10 + 64


def test_a_stack_needs_a_gpu() -> None:
    if torch.cuda.is_available():
        found = bench_stack(workloads=[(1, 8)], replicas=(1, 2), updates=50, repeats=1)
        assert [row["over 1"] > 0 for row in found.data()["rows"]] == [True, True]
    else:
        with pytest.raises(ValueError, match="no GPU"):
            bench_stack(quick=True)
