"""Gradients side by side on a GPU: the exact engine's, and the same bits however they are cut."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad.bench.models import gpt
from tardigrad.engine.fast import build_branches as building
from tardigrad.engine.fast.branches import BranchPlan
from tardigrad.engine.fast.cuda_branches import CudaBranches
from tardigrad.engine.job import Job
from tardigrad.tasks import Data, ModuleTask, Split, Turn
from tardigrad.tasks.cifar import resnet20
from tardigrad.tasks.module import initialised
from tardigrad.tasks.precision import Precision
from tests.engine.fast_cases import RULE_CASES, Stop, bits, run, stop_after
from tests.engine.test_branches import Lookup, close, images, texts

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def resnet(precision: Precision) -> ModuleTask:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (512, 3, 32, 32), generator=draw, dtype=torch.uint8)
    data = Data(Split(pixels, torch.randint(0, 10, (512,), generator=draw)))
    last = precision != "full"
    module = initialised(resnet20, 0)
    return ModuleTask(
        module, "cross_entropy", data, 64, device="cuda", precision=precision, channels_last=last
    )


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()])
def test_branches_follow_the_exact_executor(policy: Any, channels_last: bool) -> None:
    on, rule = images(channels_last, device="cuda"), RULE_CASES["sgd"]
    schedule = tg.schedule(policy, tg.Gamma(workers=12), updates=60)
    lines: list[str] = []
    fast = run(schedule, rule, "fast", task=on, say=lines.append, evaluation=25)
    assert lines[-1] == "engine: fast"
    assert not any("not compiled" in line for line in lines)
    close(fast, run(schedule, rule, "exact", task=on, evaluation=25))


def test_what_is_not_compiled_follows_too() -> None:
    on, rule = texts("cuda", Lookup), RULE_CASES["gap_aware"]
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=5), updates=60)
    lines: list[str] = []
    fast = run(schedule, rule, "fast", task=on, say=lines.append)
    assert lines[0].startswith("gradients are not compiled")
    assert lines[-1] == "engine: fast"
    close(fast, run(schedule, rule, "exact", task=on))


@pytest.mark.parametrize("precision", ["full", "tf32", "bf16"])
def test_twice_resumed_and_in_fewer_branches_give_the_same_bits(
    precision: Precision, tmp_path: Path
) -> None:
    on, rule = resnet(precision), RULE_CASES["gap_aware"]
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=20), updates=120, seed=6)
    whole = run(schedule, rule, "fast", task=on)
    assert bits(run(schedule, rule, "fast", task=on)) == bits(whole)
    saving = tg.Checkpoints(tmp_path, every=7, resume=True)
    for updates in (10, 61):
        watch = stop_after(updates)
        with pytest.raises(Stop):
            run(schedule, rule, "fast", task=on, checkpoints=saving, watch=watch)
    resumed = run(schedule, rule, "fast", task=on, checkpoints=saving)
    assert torch.equal(resumed.params, whole.params)
    assert resumed.history.loss == whole.history.loss
    for mine, theirs in zip(resumed.buffers, whole.buffers, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(("precision", "within"), [("full", 1e-4), ("tf32", 3e-2), ("bf16", 0.3)])
def test_at_one_view_a_compiled_gradient_is_the_tasks_own(
    precision: Precision, within: float
) -> None:
    """Beside full precision: what rounding alone does, in its own places."""
    on, exact, turn = resnet(precision), resnet("full"), Turn(0, 3, 0)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=4)
    job = Job.on_one_shard(schedule, on, RULE_CASES["sgd"])
    gradient, _ = building.prepared(job, lambda line: None)
    theta = on.start()
    (row,) = gradient.arrangement.staged(theta[None], torch.zeros(1, device="cuda").long())
    statistics, out = theta.new_zeros(gradient.statistics_size), torch.zeros_like(theta)
    with torch.no_grad():
        loss = gradient(row, statistics, *on.batch(turn), out)
    expected = exact.gradient(theta, turn)
    assert (out - expected.grad).norm() <= within * expected.grad.norm()
    assert abs(float(loss) - float(expected.loss)) <= within * float(expected.loss)
    for mine, theirs in zip(gradient.statistics_of(statistics), expected.buffers, strict=True):
        assert (mine - theirs).norm() <= within * theirs.norm()


def test_memory_is_what_was_predicted() -> None:
    on, rule = resnet("tf32"), RULE_CASES["gap_aware"]
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=32), updates=200)
    job = Job.on_one_shard(schedule, on, rule)
    gradient, computing = building.prepared(job, lambda line: None)
    plan = BranchPlan.of(job)
    made: list[CudaBranches] = []

    def build() -> None:
        made.append(CudaBranches(job, plan, gradient, 16))
        made[0].prepare()

    taken = building.reserved_bytes(build)
    predicted = building.predicted_branches(job, plan, computing)
    assert predicted.fixed + 16 * predicted.each == pytest.approx(taken, rel=0.1)


def test_a_large_model_takes_what_was_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt(20_000, layers=4, heads=8, width=512, context=256)
    module = initialised(model.make, 0)
    on = ModuleTask(module, model.loss, model.data(), 8, device="cuda", precision="bf16")
    monkeypatch.setattr(building, "ALONE", on.layout.size)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=8), updates=40)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    lines: list[str] = []
    job = Job.on_one_shard(schedule, on, RULE_CASES["gap_aware"])
    made = building.build_branches(job, lines.append, 2**36)
    assert not lines
    made.advance_to(40)
    assert made.most == 1
    assert len(made.tensors()["views"]) <= 8 + 1
    taken = torch.cuda.max_memory_allocated() - before
    assert made.predicted_bytes == pytest.approx(taken, rel=0.1)


def test_an_embedding_has_the_same_bits_twice() -> None:
    on, rule = texts("cuda"), RULE_CASES["gap_aware"]
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=5), updates=60)
    lines: list[str] = []
    fast = run(schedule, rule, "fast", task=on, say=lines.append)
    assert not any("not compiled" in line for line in lines)
    assert bits(run(schedule, rule, "fast", task=on)) == bits(fast)
    close(fast, run(schedule, rule, "exact", task=on))
