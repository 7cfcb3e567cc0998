"""Gradients side by side: which, how many, and that their number changes no bit."""

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.engine.drive import drive
from tardigrad.engine.fast import build_branches as building
from tardigrad.engine.fast import fixed_order
from tardigrad.engine.fast.arrangement import ALIGN, Arrangement
from tardigrad.engine.fast.branch_gradients import BranchGradient, compiled
from tardigrad.engine.fast.branches import SIZES, BranchPlan, launched, most_branches, reach
from tardigrad.engine.job import Job
from tardigrad.engine.run import Diverged, Run
from tardigrad.engine.unsuited import Unsuited
from tardigrad.tasks import Data, ModuleTask, Split, Turn
from tardigrad.tasks.module import initialised
from tests.engine.eager_graphs import branches, eager  # noqa: F401
from tests.engine.fast_cases import POLICY_CASES, RULE_CASES, task

CPU = torch.device("cpu")


@cache
def images(
    channels_last: bool = False, augment: str | None = None, device: str = "cpu"
) -> ModuleTask:
    """A convolutional model with BatchNorm, whose tensors do not all begin aligned."""

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 5, 3, padding=1, bias=False),
            nn.BatchNorm2d(5),
            nn.ReLU(),
            nn.Conv2d(5, 4, 3, stride=2, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 3),
        )

    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(120, 3, 8, 8, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, 3, (120,), generator=draw)
    data = Data(Split(inputs[:100], labels[:100]), Split(inputs[100:], labels[100:]))
    return ModuleTask(
        initialised(make, 0),
        "cross_entropy",
        data,
        6,
        dtype="float64",
        augment=augment,
        channels_last=channels_last,
        device=device,
    )


class Lookup(nn.Embedding):
    """By index, whose gradient adds up by index."""

    def forward(self, words: Tensor) -> Tensor:
        return self.weight[words]


@cache
def texts(device: str = "cpu", table: type[nn.Embedding] = nn.Embedding) -> ModuleTask:
    """A model with an embedding and a convolution."""

    def make() -> nn.Module:
        layers = table(7, 8), nn.Conv1d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(30, 2)
        return nn.Sequential(*layers)

    words = torch.randint(0, 7, (50, 4), generator=torch.Generator().manual_seed(0))
    data = (words, words[:, 0] % 2)
    module = initialised(make, 0)
    return ModuleTask(module, "cross_entropy", data, 6, dtype="float64", device=device)


def close(run: Run, exact: Run) -> None:
    assert (run.params - exact.params).abs().max() <= 1e-9
    np.testing.assert_allclose(run.history.loss, exact.history.loss, rtol=1e-9)
    for mine, theirs in zip(run.buffers, exact.buffers, strict=True):
        assert (mine - theirs).abs().max() <= 1e-9 * theirs.abs().max()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("most", [1, 4, 16])
@pytest.mark.parametrize("name", ["sgd", "gap_aware", "dana_ga", "adam_sa"])
def test_branches_follow_the_exact_executor(name: str, most: int) -> None:
    rule = RULE_CASES[name]
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=12, heterogeneous=True), updates=90)
    for of in (images(), images(channels_last=True), task(batch_norm=True)):
        run = drive(branches(Job.on_one_shard(schedule, of, rule), most), 40)
        close(run, tg.execute(schedule, of, rule, "exact", evaluation=40))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("case", ["augmented", "clipped", "no wait", "uniform"])
def test_batches_from_outside_clipping_and_other_schedules(case: str) -> None:
    of = images(augment="pad_crop_flip" if case == "augmented" else None)
    rule, work = tg.rules.dana(lr=0.05), tg.OneGradient(0.1 if case == "clipped" else None)
    policy, cluster, _ = POLICY_CASES[case if case in POLICY_CASES else "gamma"]
    schedule = tg.schedule(policy, cluster, updates=60)
    run = drive(branches(Job.on_one_shard(schedule, of, rule, work)), 40)
    close(run, tg.execute(schedule, of, rule, "exact", evaluation=40, work=work))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("workers", [2, 7, 16])
@pytest.mark.parametrize("policy", ["sync", "backup"])
def test_rounds_are_the_mean_of_their_branches(workers: int, policy: str) -> None:
    by = tg.Sync() if policy == "sync" else tg.Backup(backups=1)
    schedule = tg.schedule(by, tg.Gamma(workers=workers, heterogeneous=True), updates=12)
    job = Job.on_one_shard(schedule, images(), RULE_CASES["adam"])
    run = drive(branches(job, 4), 5)
    close(run, tg.execute(schedule, images(), RULE_CASES["adam"], "exact", evaluation=5))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()])
def test_who_diverged_is_told(policy: Any) -> None:
    schedule = tg.schedule(policy, tg.Gamma(workers=5, heterogeneous=True), updates=20)
    job = Job.on_one_shard(schedule, task(), tg.rules.sgd(lr=1e200))
    with pytest.raises(Diverged) as expected:
        tg.execute(schedule, task(), job.rule, "exact")
    with pytest.raises(Diverged) as found:
        drive(branches(job), 20)
    assert (str(found.value), found.value.update) == (
        str(expected.value),
        expected.value.update,
    )


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()])
def test_the_number_of_branches_stops_and_resuming_change_no_bit(policy: Any) -> None:
    schedule = tg.schedule(policy, tg.Gamma(workers=9), updates=60)
    job = Job.on_one_shard(schedule, images(), RULE_CASES["sgd"])
    whole = branches(job)
    whole.advance_to(60)
    for most, stop in ((1, 60), (2, 13), (16, 31)):
        begun = branches(job, most)
        begun.advance_to(stop)
        saved = {n: t.clone() for n, t in begun.tensors().items()}, json.dumps(begun.facts())
        again = branches(job)
        again.restore(saved[0], json.loads(saved[1]))
        again.advance_to(60)
        assert torch.equal(again.params, whole.params)
        assert again.history.loss == whole.history.loss
        for mine, theirs in zip(again.buffers, whole.buffers, strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", ["gamma", "uniform", "no wait"])
@pytest.mark.parametrize("seed", range(3))
def test_a_launch_ends_where_a_view_is_missing_or_a_worker_comes_again(
    name: str, seed: int
) -> None:
    policy, cluster, _ = POLICY_CASES[name]
    schedule = tg.schedule(policy, cluster, updates=70, seed=seed)
    read, worker = schedule.read[schedule.group_rows, 0], schedule.worker[schedule.group_rows]
    found = reach(schedule)
    for first, end in enumerate(found.tolist()):
        last = first
        while last < 70 and read[last] <= first and worker[last] not in worker[first:last]:
            last += 1
        assert end == last > first


def test_launches_are_as_large_as_memory_and_the_stop_allow() -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=32), updates=100)
    plan = BranchPlan.of(Job.on_one_shard(schedule, task(), RULE_CASES["sgd"]))
    for most, begin, end in ((16, 0, 100), (16, 3, 30), (4, 0, 41), (1, 5, 9)):
        at = begin
        for first, size in plan.launches(begin, end, most):
            assert first == at
            fits = min(most, end - at, plan.reach[at] - at)
            assert size in SIZES
            assert size <= fits < 2 * size or size == SIZES[-1]
            at += size
        assert at == end
    assert launched(13, 16) == 8


def test_other_groups_than_rounds_are_left_to_the_exact_engine() -> None:
    for name, rule in (("soft", "sgd"), ("shards", "sgd"), ("sync", "gap_aware")):
        policy, cluster, shards = POLICY_CASES[name]
        schedule = tg.schedule(policy, cluster, updates=40, shards=shards)
        with pytest.raises(Unsuited):
            BranchPlan.of(Job.on_one_shard(schedule, task(), RULE_CASES[rule]))


def test_fewer_branches_where_memory_does_not_suffice() -> None:
    assert most_branches(longest=40, each_bytes=10, left_bytes=1000) == 16
    assert most_branches(longest=40, each_bytes=10, left_bytes=85) == 8
    assert most_branches(longest=3, each_bytes=10, left_bytes=1000) == 2
    assert most_branches(longest=3, each_bytes=10, left_bytes=9) == 0


@pytest.mark.usefixtures("eager")
def test_the_user_is_told_of_fewer_branches_and_of_too_little_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "captured_bytes", lambda run, device: 2**20)
    monkeypatch.setattr(building, "reserved_bytes", lambda run: 0)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=32), updates=100)
    job = Job.on_one_shard(schedule, images(), RULE_CASES["sgd"])
    lines: list[str] = []
    assert building.build_branches(job, lines.append, 2**30).most == 16
    assert not lines
    assert building.build_branches(job, lines.append, 6 * 2**20).most == 4
    (line,) = lines
    assert line.startswith("16 gradients at once would take 1")
    assert line.endswith("and there are 6.0 MiB: 4 at once")
    with pytest.raises(ValueError, match="the run would take"):
        building.build_branches(job, lines.append, 2**20)


@pytest.mark.usefixtures("eager")
def test_what_is_not_compiled_runs_alone_and_what_branches_cannot_do_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "captured_bytes", lambda run, device: 2**20)
    monkeypatch.setattr(building, "reserved_bytes", lambda run: 0)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=32), updates=100)
    lines: list[str] = []
    made = building.build_branches(
        Job.on_one_shard(schedule, texts(table=Lookup), RULE_CASES["sgd"]), lines.append, 2**30
    )
    assert made.most == 1
    (line,) = lines
    assert line.startswith("gradients are not compiled: compiled, its index_put")

    class OwnBatches(ModuleTask):
        def batch(self, turn: Turn) -> tuple[Any, Any]:
            return super().batch(Turn(0, 0, 0))

    own = OwnBatches(nn.Linear(12, 3), "cross_entropy", task().data, 6, dtype="float64")
    with pytest.raises(Unsuited, match="has a batch of its own"):
        building.build_branches(Job.on_one_shard(schedule, own, RULE_CASES["sgd"]), print, 2**30)
    norms = nn.Sequential(nn.BatchNorm1d(12, momentum=0.2), nn.BatchNorm1d(12), nn.Linear(12, 3))
    mixed = ModuleTask(norms, "cross_entropy", task().data, 6, dtype="float64")
    with pytest.raises(Unsuited, match="different momenta"):
        building.build_branches(Job.on_one_shard(schedule, mixed, RULE_CASES["sgd"]), print, 2**30)


def test_tensors_lie_aligned_and_by_their_strides() -> None:
    of = images(channels_last=True)
    arrangement = Arrangement(of.layout, of.strides, CPU)
    draw = torch.Generator().manual_seed(0)
    vectors = torch.randn(4, of.layout.size + 7, generator=draw)
    rows = arrangement.staged(vectors, torch.tensor([2, 0]))
    for row, vector in zip(rows, vectors[[2, 0]], strict=True):
        pieces = arrangement.tensors_of(row)
        expected = of.layout.unflatten(vector[: of.layout.size])
        for piece_, stride, value in zip(pieces, of.strides, expected.values(), strict=True):
            assert torch.equal(piece_, value)
            assert piece_.stride() == stride
            assert piece_.storage_offset() % ALIGN == 0
        out = torch.zeros(of.layout.size)
        arrangement.flatten_(out, pieces)
        assert torch.equal(out, vector[: of.layout.size])
        arrangement.flatten_(out, [piece_.contiguous() * 2 for piece_ in pieces])
        assert torch.equal(out, vector[: of.layout.size] * 2)


def test_what_lies_straight_is_not_looked_up() -> None:
    straight = Layout(("a", "b"), ((4, 8), (3,)))
    arrangement = Arrangement(straight, [(8, 1), (1,)], CPU)
    vectors = torch.arange(70.0).view(2, 35)
    (row,) = arrangement.staged(vectors, torch.tensor([1]))
    a, b = arrangement.tensors_of(row)
    assert torch.equal(a.flatten(), vectors[1, :32])
    assert torch.equal(b, vectors[1, 32:])
    out = torch.zeros(35)
    arrangement.flatten_(out, [a, b])
    assert torch.equal(out, vectors[1])
    assert len(row) == 35 < arrangement.row


def given(of: ModuleTask, turn: Turn) -> tuple[BranchGradient, tuple[Tensor, Tensor, Any]]:
    gradient = BranchGradient(of, tg.OneGradient())
    (row,) = gradient.arrangement.staged(of.start()[None] * 1.01, torch.zeros(1).long())
    return gradient, (row, torch.zeros(gradient.statistics_size).double(), of.batch(turn))


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_compiled_gradient_is_the_tasks_own(channels_last: bool) -> None:
    of = images(channels_last)
    eager_one, (row, zeros, batch) = given(of, Turn(0, 0, 0))
    pieces = eager_one.arrangement.tensors_of(row)
    function = compiled(of, (*batch, *pieces, *eager_one.statistics_of(zeros.clone())))
    for turn in (Turn(0, 0, 0), Turn(3, 5, 7)):
        expected = of.gradient(of.start() * 1.01, turn)
        for way in (None, function):
            gradient = BranchGradient(of, tg.OneGradient(), way)
            statistics, out = zeros.clone(), torch.zeros_like(of.start())
            loss = gradient(row, statistics, *of.batch(turn), out)
            torch.testing.assert_close(loss, expected.loss, rtol=1e-12, atol=0)
            assert (out - expected.grad).abs().max() <= 1e-12
            for mine, theirs in zip(
                gradient.statistics_of(statistics), expected.buffers, strict=True
            ):
                torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def test_what_adds_up_by_index_is_not_compiled() -> None:
    of = texts(table=Lookup)
    gradient, (row, _, batch) = given(of, Turn(0, 0, 0))
    with pytest.raises(Unsuited, match="index_put would add up in no fixed order"):
        compiled(of, (*batch, *gradient.arrangement.tensors_of(row)))


def test_an_embedding_is_compiled_and_its_gradient_torchs_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = texts()
    gradient, (row, zeros, batch) = given(of, Turn(0, 0, 0))
    function = compiled(of, (*batch, *gradient.arrangement.tensors_of(row)))
    calls: list[int] = []

    def watched(grad: Tensor, indices: Tensor, rows: int, *rest: Any) -> Any:
        calls.append(rows)
        return torch.ops.aten.embedding_dense_backward(grad, indices, rows, *rest)

    monkeypatch.setattr(fixed_order, "ATEN", SimpleNamespace(embedding_dense_backward=watched))
    out = torch.zeros_like(of.start())
    inputs, targets = batch
    BranchGradient(of, tg.OneGradient(), function)(row, zeros, inputs, targets, out)
    assert calls == [7]
    expected = of.gradient(of.start() * 1.01, Turn(0, 0, 0))
    assert (out - expected.grad).abs().max() <= 1e-12


@pytest.mark.usefixtures("eager")
def test_a_large_model_has_one_gradient_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "captured_bytes", lambda run, device: 2**20)
    monkeypatch.setattr(building, "reserved_bytes", lambda run: 0)
    monkeypatch.setattr(building, "ALONE", images().layout.size)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=8), updates=100)
    job = Job.on_one_shard(schedule, images(), RULE_CASES["gap_aware"])
    made = building.build_branches(job, print, 2**30)
    assert made.most == 1
    assert len(made.tensors()["views"]) <= 8 + 1
    close(drive(made, 40), tg.execute(schedule, images(), job.rule, "exact", evaluation=40))
