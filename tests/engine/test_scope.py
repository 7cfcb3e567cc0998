"""What a rule looks at is found from its code, on one shard and several, in both engines."""

from typing import Any

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.engine.drive import drive
from tardigrad.engine.fast.cuda_graphs import CudaGraphs
from tardigrad.engine.fast.stack import Replica
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import trace
from tardigrad.engine.scope import not_elementwise
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import (
    Gap,
    Now,
    Push,
    Sgd,
)
from tests.engine.eager_graphs import eager  # noqa: F401
from tests.engine.fast_cases import task as perceptron_task
from tests.engine.scope_rules import (
    ALONE,
    LR,
    ORDER,
    TOGETHER,
    Does,
    DoesAll,
    DoesAlone,
    DoesByTensor,
    DoesLayers,
    Normed,
    NormedAdam,
    NormedAll,
    NormedByTensor,
    NormedSilently,
    OfGroups,
    PeeksAtAll,
    run,
    task,
)


@pytest.mark.parametrize("name", TOGETHER)
def test_who_looks_at_several_parameters_is_refused_on_several_shards(name: str) -> None:
    rule = tg.Rule(LR, Sgd(0.5), Does(TOGETHER[name]))
    assert not_elementwise(rule, torch.float64) is not None
    for engine in ("exact", "fast"):
        with pytest.raises(ValueError, match=r'Does was not found .* scope = "parameter"'):
            run(rule, engine, shards=2)


@pytest.mark.parametrize("name", TOGETHER)
def test_who_looks_at_several_parameters_steps_back_in_the_fast_engine(name: str) -> None:
    rule = tg.Rule(LR, Sgd(0.5), Does(TOGETHER[name]))
    with pytest.raises(Unsuited):
        trace(rule, torch.float64)
    said: list[str] = []
    fast, exact = run(rule, "fast", say=said.append), run(rule)
    assert any("updates one by one: no kernel" in line for line in said)
    assert (fast - exact).abs().max() <= 1e-12
    assert not torch.equal(exact, run(tg.Rule(LR, Sgd(0.5))))


@pytest.mark.parametrize("name", ALONE)
def test_who_treats_each_parameter_alone_need_not_say_so(name: str) -> None:
    """Whether or not there is a kernel for it."""
    rule = tg.Rule(LR, Sgd(0.5), Does(ALONE[name]))
    exact = run(rule)
    assert torch.equal(exact, run(rule, shards=3))
    for shards in (1, 2):
        assert (run(rule, "fast", shards) - exact).abs().max() <= 1e-12


def test_reading_the_view_is_seen() -> None:
    """What the GPU's graphs keep views by."""
    for name, what in ALONE.items():
        rule = tg.Rule(LR, Sgd(0.5), Does(what))
        if not_kernel(rule):
            continue
        assert trace(rule, torch.float32).reads_view == (name == "view")
    for name, rule in {name: tg.rules.RULES[name](LR) for name in ("gap_aware", "sgd")}.items():
        assert trace(rule, torch.float32).reads_view == (name == "gap_aware")


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["plain", "view"])
def test_the_gpus_graphs_keep_the_views_that_a_rule_reads(name: str) -> None:
    rule = tg.Rule(LR, Sgd(0.5), Does(ALONE[name]))
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=7, heterogeneous=True), updates=120)
    graphs = CudaGraphs([Job.on_one_shard(schedule, perceptron_task(), rule)])
    graphs.prepare()
    exact = tg.execute(schedule, perceptron_task(), rule, "exact").params
    assert (drive(Replica(graphs)).params - exact).abs().max() <= 1e-11


def not_kernel(rule: tg.Rule) -> bool:
    try:
        trace(rule, torch.float32)
    except Unsuited:
        return True
    return False


@pytest.mark.parametrize("optimizer", [Normed(), NormedAll(), NormedAdam()], ids=repr)
def test_an_optimizer_with_a_norm_on_one_shard(optimizer: Any) -> None:
    rule = tg.Rule(LR, optimizer)
    assert (run(rule, "fast") - run(rule)).abs().max() <= 1e-12
    many = tg.Schedule.from_order(ORDER, 3, tg.SoftSync(groups=1))
    fast, exact = (tg.execute(many, task(), rule, e).params for e in ("fast", "exact"))
    assert (fast - exact).abs().max() <= 1e-12


@pytest.mark.parametrize("optimizer", [Normed(), NormedAdam(), PeeksAtAll(0.5), OfGroups()])
def test_an_optimizer_with_a_norm_is_refused_on_several_shards(optimizer: Any) -> None:
    name = type(optimizer).__name__
    for correction in (tg.rules.Raw(), Gap(step="tentative"), Gap("layer", "tentative")):
        rule = tg.Rule(LR, optimizer, correction)
        with pytest.raises(ValueError, match=rf"{name} was not found to treat each parameter"):
            run(rule, shards=3, shard_by="tensor")


def test_what_is_said_decides_how_shards_may_be_cut() -> None:
    rule = tg.Rule(LR, NormedAll())
    with pytest.raises(ValueError, match=r'NormedAll .*scope "model".*use shards = 1'):
        run(rule, shards=3, shard_by="tensor")
    norm = TOGETHER["norm"]
    with pytest.raises(ValueError, match=r'DoesAll .*scope "model".*use shards = 1'):
        run(tg.Rule(LR, Sgd(), DoesAll(norm)), shards=2)
    with pytest.raises(ValueError, match=r'DoesByTensor .*shard_by = "tensor"'):
        run(tg.Rule(LR, Sgd(), DoesByTensor(norm)), shards=3)
    with pytest.raises(ValueError, match=r"DoesLayers\.scope must be .*'tensor'"):
        run(tg.Rule(LR, Sgd(), DoesLayers(norm)), shards=2)


def by_tensor(theta: Tensor, push: Push, now: Now, layout: Layout) -> Tensor:
    parts = layout.unflatten(push.grad).values()
    return torch.cat([(part / (1 + part.norm())).flatten() for part in parts])


def test_norms_of_tensors_survive_sharding_by_tensor() -> None:
    rule = tg.Rule(LR, Sgd(0.5), DoesByTensor(by_tensor))
    exact = run(rule)
    for engine in ("exact", "fast"):
        for shards in (1, 2, 3):
            sharded = run(rule, engine, shards, shard_by="tensor")
            assert (sharded - exact).abs().max() <= 1e-12


@pytest.mark.parametrize("rows", [False, True])
def test_an_optimizer_by_tensor_survives_sharding_by_tensor(rows: bool) -> None:
    rule = tg.Rule(LR, NormedByTensor(rows=rows))
    exact = run(rule)
    for engine in ("exact", "fast"):
        for shards in (1, 2, 3):
            sharded = run(rule, engine, shards, shard_by="tensor")
            assert (sharded - exact).abs().max() <= 1e-12
    with pytest.raises(ValueError, match=r'NormedByTensor .*shard_by = "tensor"'):
        run(rule, shards=3)
    other = run(tg.Rule(LR, NormedByTensor(rows=not rows)))
    assert not torch.allclose(exact, other)


def test_an_optimizer_that_asks_for_the_layout_and_says_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"NormedSilently was not found .*asks for the layout"):
        run(tg.Rule(LR, NormedSilently()), shards=3, shard_by="tensor")


def test_a_word_that_the_code_contradicts_is_refused() -> None:
    rule = tg.Rule(LR, Sgd(), DoesAlone(TOGETHER["norm"]))
    with pytest.raises(ValueError, match=r"DoesAlone says .* linalg_vector_norm .* shards = 1"):
        run(rule, shards=2)


def test_a_word_is_taken_where_the_code_cannot_be_followed() -> None:
    def read(theta: Tensor, push: Push, now: Now, layout: Layout) -> Tensor:
        return push.grad / 2 if float(push.staleness) > 2 else push.grad

    with pytest.raises(ValueError, match=r"Does was not found .*reads numbers out of tensors"):
        run(tg.Rule(LR, Sgd(), Does(read)), shards=2)
    said = tg.Rule(LR, Sgd(), DoesAlone(read))
    for engine in ("exact", "fast"):
        assert (run(said, engine, shards=2) - run(said)).abs().max() <= 1e-12


def test_a_rule_that_reads_tensors_is_refused_where_the_schedule_is_made_meanwhile() -> None:
    rule = tg.Rule(LR, Normed(), tg.rules.Fasgd())
    with pytest.raises(ValueError, match=r"Normed was not found to treat each parameter alone"):
        tg.simulate(
            task(), rule, cluster=tg.Gamma(workers=3), shards=2, link=tg.BandwidthAware(0.1)
        )


def test_a_run_on_ray_is_refused_before_it_starts() -> None:
    pytest.importorskip("ray")
    rule = tg.Rule(LR, Normed())
    with pytest.raises(ValueError, match=r"Normed was not found to treat each parameter alone"):
        tg.train(task(), rule, workers=2, shards=2, updates=5)


class OfWeights(Sgd):
    """Is written for tensors of certain names."""

    def start(self, theta: Tensor, layout: Layout) -> Any:
        assert layout.unflatten(theta)["weight"].shape == (2, 3)
        return super().start(theta, layout)


@pytest.mark.parametrize("link", [tg.Every(pull=2), tg.BandwidthAware(0.1)], ids=repr)
def test_an_optimizer_is_given_the_layout_of_the_task_and_no_other(link: Any) -> None:
    rule = tg.Rule(LR, OfWeights(0.5), tg.rules.Fasgd())
    given = tg.Rule(LR, Sgd(0.5), tg.rules.Fasgd())
    ends = [
        tg.simulate(task(), r, cluster=tg.Gamma(workers=3), updates=20, link=link).params
        for r in (rule, given)
    ]
    assert torch.equal(*ends)
