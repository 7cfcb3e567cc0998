"""Stacked replicas: each is its single run, and one that diverges leaves the others alone."""

import copy
import json
from collections.abc import Sequence

import pytest
import torch

import tardigrad as tg
from tardigrad.bench.loops import perceptron
from tardigrad.engine.drive import drive
from tardigrad.engine.fast.build_stack import check_stackable, stack_on_device, stacked_bytes
from tardigrad.engine.fast.cuda_graphs import CudaGraphs
from tardigrad.engine.fast.on_device import OnDevice
from tardigrad.engine.fast.stack import Replica, Stack
from tardigrad.engine.fast.stacking import Stacking, by_kernel
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import trace
from tardigrad.engine.run import Diverged, Run
from tardigrad.engine.together import drive_together
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import Rule
from tardigrad.tasks import Data, ModuleTask, Split, Task
from tardigrad.tasks.module import initialised
from tests.engine.eager_graphs import branches, eager  # noqa: F401
from tests.engine.fast_cases import RULE_CASES, task

SCHEDULES = {
    "gamma": (tg.Async(), tg.Gamma(workers=7, heterogeneous=True)),
    "uniform": (tg.Async(), tg.Dispatcher(workers=6)),
}


def seeded(seed: int, device: str = "cpu", hidden: int = 9, dtype: str = "float64") -> ModuleTask:
    """The shared data with other initial parameters and other batches."""

    def make() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Linear(12, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 3)
        )

    data = task().data
    return ModuleTask(
        initialised(make, seed),
        "cross_entropy",
        Data(Split(data.train.inputs.clone(), data.train.targets), data.validation),
        5,
        seed=seed,
        device=device,
        dtype=dtype,
    )


def points(device: str = "cpu", dtype: str = "float64") -> tuple[list[ModuleTask], list[Rule]]:
    """Two rates × two seeds × two rules, and one that averages."""
    tasks = [seeded(seed, device, dtype=dtype) for seed in (0, 1)]
    rules = [
        make(lr=lr, momentum=0.9)
        for lr in (0.01, 0.05)
        for make in (tg.rules.gap_aware, tg.rules.dana)
    ]
    pairs = [(t, r) for t in tasks for r in rules]
    pairs.append((tasks[1], RULE_CASES["composed"]))
    return [t for t, _ in pairs], [r for _, r in pairs]


def jobs_of(schedule: tg.Schedule, tasks: Sequence[ModuleTask], rules: Sequence[Rule]) -> list[Job]:
    pairs = zip(tasks, rules, strict=True)
    return [Job.on_one_shard(schedule, task, rule) for task, rule in pairs]


def captured(jobs: Sequence[Job]) -> CudaGraphs:
    graphs = CudaGraphs(jobs)
    graphs.prepare()
    return graphs


def same_history(one: Run, other: Run, within: float = 0.0) -> None:
    assert len(one.history.records) == len(other.history.records)
    for mine, theirs in zip(one.history.records, other.history.records, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            if name != "wall_s":
                assert mine[name] == pytest.approx(theirs[name], rel=within, abs=within), name
    assert one.history.loss == pytest.approx(other.history.loss, rel=within, abs=within)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", SCHEDULES)
def test_each_replica_is_its_single_run(name: str) -> None:
    schedule = tg.schedule(*SCHEDULES[name], updates=60, seed=3)
    tasks, rules = points()
    found = drive_together(Stack(captured(jobs_of(schedule, tasks, rules))), 25)
    ends = []
    for of, rule, mine in zip(tasks, rules, found, strict=True):
        assert isinstance(mine, Run)
        exact = tg.execute(schedule, of, rule, "exact", evaluation=25)
        single = drive(Replica(captured(jobs_of(schedule, [of], [rule]))), 25)
        for other in (exact, single):
            assert (mine.params - other.params).abs().max() <= 1e-11
            same_history(mine, other, 1e-9)
            assert (mine.average is None) == (other.average is None)
            if mine.average is not None and other.average is not None:
                assert (mine.average - other.average).abs().max() <= 1e-11
        ends.append(mine.params)
    apart = torch.cdist(torch.stack(ends), torch.stack(ends)) + torch.eye(len(ends))
    assert apart.min() > 1e-6


@pytest.mark.usefixtures("eager")
def test_fed_the_same_gradients_the_updates_have_the_same_bits() -> None:
    """One task for all, float32: only the kernel's numbers could differ."""
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=5), updates=40)
    of = seeded(0, dtype="float32")
    rules = [tg.rules.gap_aware(lr=0.01), RULE_CASES["adam"], tg.rules.gap_aware(lr=0.03)]
    stacked = captured(jobs_of(schedule, [of] * 3, rules))
    singles = [captured(jobs_of(schedule, [of], [rule])) for rule in rules]
    draw = torch.Generator().manual_seed(0)

    def computed(graphs: CudaGraphs, grads: torch.Tensor) -> None:
        rows = graphs.grads.view(graphs.grads.shape[0], -1, graphs.stacking.stride)
        rows[: len(grads), :, : of.layout.size] = grads[:, None]

    for b in range(stacked.batches.count):
        begin, end = stacked.batches.window[b : b + 2]
        grads = torch.randn(2 * stacked.stage, of.layout.size, generator=draw)
        for graphs in (stacked, *singles):
            computed(graphs, grads)
            graphs.apply_window(begin, end)
            graphs.finish_batch()
    for i, single in enumerate(singles):
        assert torch.equal(stacked.numbers_of(i).theta, single.numbers_of(0).theta)
    assert not torch.equal(stacked.numbers_of(0).theta, stacked.numbers_of(2).theta)


@pytest.mark.usefixtures("eager")
def test_one_that_diverges_is_named_and_the_others_go_on() -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=60)
    of = seeded(0)
    rules = [tg.rules.sgd(lr=0.05), tg.rules.sgd(lr=1e200), tg.rules.adam(lr=0.01)]
    good, bad, also = drive_together(Stack(captured(jobs_of(schedule, [of] * 3, rules))), 20)
    with pytest.raises(Diverged) as single:
        drive(Replica(captured(jobs_of(schedule, [of], [rules[1]]))), 20)
    assert isinstance(bad, Diverged)
    assert (str(bad), bad.update) == (str(single.value), single.value.update)
    for run, rule in ((good, rules[0]), (also, rules[2])):
        assert isinstance(run, Run)
        exact = tg.execute(schedule, of, rule, "exact", evaluation=20)
        assert (run.params - exact.params).abs().max() <= 1e-11
        same_history(run, exact, 1e-9)
    everything = drive_together(Stack(captured(jobs_of(schedule, [of] * 2, [rules[1]] * 2))), 20)
    assert all(isinstance(end, Diverged) for end in everything)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("batched", [False, True])
def test_a_checkpoint_goes_on_where_it_was_and_another_types_is_refused(batched: bool) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=60)

    def made(dtype: str) -> OnDevice:
        job = Job.on_one_shard(schedule, seeded(0, dtype=dtype), RULE_CASES["dana_ga"])
        return Replica(captured([job])) if batched else branches(job)

    whole, begun = made("float64"), made("float64")
    whole.advance_to(60)
    begun.advance_to(23)
    tensors = {name: t.clone() for name, t in begun.tensors().items()}
    saved = tensors, json.loads(json.dumps(begun.facts()))
    begun.advance_to(60)
    again = made("float64")
    again.restore(*saved)
    assert (again.position, again.samples) == (23, 23 * 5)
    again.advance_to(60)
    for one in (begun, again):
        assert torch.equal(one.params, whole.params)
        assert one.history.loss == whole.history.loss
    with pytest.raises(ValueError, match=r"another rule or task \(.* differs\)"):
        made("float32").restore(*saved)


def test_replicas_begin_blocks_and_one_alone_is_not_padded() -> None:
    vectors = [torch.full((300,), float(i)) for i in range(3)]
    several = Stacking(300, 3)
    placed = several.place(vectors)
    assert several.stride == 512
    assert len(placed) == several.row == 3 * 512
    for i, vector in enumerate(vectors):
        assert torch.equal(several.of(placed, i), vector)
        assert not placed[i * 512 + 300 : (i + 1) * 512].any()
    one = Stacking(300)
    assert torch.equal(one.place(vectors[:1]), vectors[0])
    assert one.stride == 320


def test_rules_share_a_kernel_where_only_coefficients_differ() -> None:
    rules = [
        tg.rules.gap_aware(lr=0.1),
        tg.rules.sgd(lr=0.1),
        tg.rules.gap_aware(lr=0.2),
        tg.rules.gap_aware(lr=0.1, momentum=0.5),
        tg.rules.sgd(lr=0.3),
    ]
    assert by_kernel([trace(rule, torch.float32) for rule in rules]) == [[0, 2], [1, 4], [3]]


def test_tasks_must_differ_in_their_seed_alone() -> None:
    one = seeded(0)
    assert one.differs(seeded(1)) is None
    assert one.differs(seeded(1, hidden=8)) == "layout"
    assert one.differs(seeded(1, dtype="float32")) == "dtype"
    moved = Data(Split(one.data.train.inputs + 1, one.data.train.targets))
    other = ModuleTask(one.module, "cross_entropy", moved, 5)
    assert one.differs(other) == "training data"
    scaled = copy.deepcopy(one.module)
    scaled.register_buffer("scale", torch.ones(1))
    bigger = ModuleTask(scaled, "cross_entropy", one.data, 5)
    assert one.differs(bigger) == "what the model does not learn"


@pytest.mark.parametrize(
    ("rule", "other", "why"),
    [
        (tg.rules.gap_aware(lr=0.1, per="global"), seeded(1), "no kernel for the rule"),
        (tg.rules.sgd(lr=0.1), seeded(1, hidden=8), "the tasks differ in layout"),
        (tg.rules.sgd(lr=0.1), task(batch_norm=True), "BatchNorm"),
        (tg.rules.sgd(lr=0.1), tg.FunctionTask(torch.ones(3), lambda *of: of[0]), "only modules"),
    ],
)
def test_what_cannot_be_stacked_is_told(rule: Rule, other: Task, why: str) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=20)
    with pytest.raises(Unsuited, match=why):
        check_stackable(schedule, [seeded(0), other], [tg.rules.sgd(lr=0.1), rule])


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@needs_gpu
@pytest.mark.parametrize("name", SCHEDULES)
def test_on_the_gpu_each_replica_is_its_single_run(name: str) -> None:
    schedule = tg.schedule(*SCHEDULES[name], updates=200, seed=3)
    tasks, rules = points("cuda")
    found = drive_together(stack_on_device(check_stackable(schedule, tasks, rules)), 70)
    for of, rule, mine in zip(tasks, rules, found, strict=True):
        assert isinstance(mine, Run)
        single = tg.execute(schedule, of, rule, "fast", evaluation=70)
        assert (mine.params - single.params).abs().max() <= 1e-9
        same_history(mine, single, 1e-8)


@needs_gpu
def test_on_the_gpu_a_stack_takes_what_its_bytes_say() -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=32), updates=2000)
    of, (_, rules) = perceptron(4, "cuda"), points()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    jobs = jobs_of(schedule, [of] * len(rules), rules)
    stack = stack_on_device(jobs)
    stack.advance_to(2000)
    taken = torch.cuda.max_memory_allocated() - before
    told = len(rules) * stacked_bytes(jobs)
    assert 0.5 * told <= taken <= 1.5 * told
