"""Real runs on a local Ray: every policy, recorded and replayed bit for bit."""

import random
import time

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tardigrad as tg
from tardigrad import rules
from tardigrad.engine.shard import WORTH_FOLLOWING
from tardigrad.policies import Policy
from tardigrad.protocol.run_processes import Patience
from tardigrad.runtime import ActorPool, Change, train
from tardigrad.tasks import TASKS, Task
from tardigrad.tasks.split import Data, Split
from tests.rules.named_rules import made
from tests.runtime.run_checks import assert_replays
from tests.runtime.spare_pool import SparePool

TASK = TASKS["logistic_regression"](sampling="epoch")
POLICIES = {
    "async": tg.Async(),
    "sync": tg.Sync(),
    "backup": tg.Backup(backups=1),
    "partial": tg.Partial(push=2, push_timeout_s=0.005, pull=0.5, pull_timeout_s=0.002),
    "ssp": tg.StaleSynchronous(bound=2),
}
OTHERS = {
    "async_no_wait": tg.Async(wait=False),
    "softsync": tg.SoftSync(groups=2, wait=False),
    "bounded": tg.BoundedDelay(max_delay=2),
    "deadline": tg.Deadline(timeout_s=0.02),
    "partial_pull": tg.PartialPull(tg.StaleSynchronous(bound=2), pull=0.5),
    "ramp_up": tg.RampUp(tg.Async(), updates=30),
}
RULES = ("gap_aware", "dana_ga", "fasgd", "delay_compensated")


def run_and_replay(
    policy: Policy,
    rule_name: str,
    pool: ActorPool,
    updates: int = 60,
    task: Task = TASK,
    shared_memory: bool = True,
) -> tg.Run:
    rule = made(rule_name, 0.02)
    processes = tg.Processes(pool=pool, shared_memory=shared_memory)
    run = train(task, rule, policy, workers=4, shards=2, updates=updates, processes=processes)
    assert_replays(run, task, rule, updates)
    return run


@pytest.mark.parametrize("updates", [60, pytest.param(200, marks=pytest.mark.stress)])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("policy", POLICIES)
def test_all_twenty_replay_bit_for_bit(
    policy: str, rule: str, updates: int, pool: ActorPool
) -> None:
    schedule = run_and_replay(POLICIES[policy], rule, pool, updates).schedule
    if policy == "sync":
        assert schedule.delays.max() == 0
        assert (schedule.applied == updates).all()  # at both shards
    elif policy == "async":
        assert schedule.delays.mean() > 1


def drawing(view: Tensor, worker: int, step: int) -> Tensor:
    return view * (random.random() + torch.rand(len(view))) + float(np.random.rand())


def test_what_a_task_draws_is_drawn_again_by_the_replay(pool: ActorPool) -> None:
    run_and_replay(tg.Async(), "gap_aware", pool, task=tg.FunctionTask(torch.ones(12), drawing))


@pytest.mark.parametrize("policy", OTHERS)
def test_the_other_policies_run_with_real_timers(policy: str, pool: ActorPool) -> None:
    run_and_replay(OTHERS[policy], "gap_aware", pool, updates=40)


@pytest.mark.parametrize(
    ("rule", "policy"),
    [
        ("delayed_nesterov", tg.Quorum(2, grace_s=0.005)),
        ("schedule_free", tg.Quorum(2, grace_s=0.005, late="next")),
        ("staleness_weighted", tg.SoftSync(size=3, wait=False)),
        ("delay_adaptive", tg.Ringmaster(3)),
        ("pipemare", tg.Rennala(3)),
        ("fedasync", tg.Async()),
    ],
    ids=str,
)
def test_the_newer_rules_and_policies_replay_bit_for_bit(
    rule: str, policy: Policy, pool: ActorPool
) -> None:
    run_and_replay(policy, rule, pool, updates=40)


def test_muon_replays_bit_for_bit_on_shards_of_whole_tensors(pool: ActorPool) -> None:
    rule = made("muon", 0.02)
    run = train(
        TASK, rule, tg.Async(), workers=3, shards=2, shard_by="tensor", updates=30,
        processes=tg.Processes(pool=pool),
    )  # fmt: skip
    assert_replays(run, TASK, rule, 30, shard_by="tensor")
    with pytest.raises(ValueError, match=r'Muon .*shard_by = "tensor"'):
        train(TASK, rule, tg.Async(), workers=3, shards=2, updates=30)


@pytest.mark.parametrize(
    ("size", "policy"),
    [
        (100, tg.Sync()),
        (2_500_000, tg.Async()),
        pytest.param(100, tg.Async(), marks=pytest.mark.stress),
        pytest.param(2_500_000, tg.Sync(), marks=pytest.mark.stress),
    ],
    ids=str,
)
def test_without_shared_memory_numbers_travel_through_sockets(
    size: int, policy: Policy, pool: ActorPool
) -> None:
    task = tg.FunctionTask(torch.linspace(-1, 1, size), lambda view, worker, step: view + worker)
    run_and_replay(policy, "gap_aware", pool, updates=6, task=task, shared_memory=False)


@pytest.mark.parametrize(
    ("rule", "policy"),
    [
        ("sgd", tg.Async()),
        ("dana", tg.SoftSync(groups=2)),
        pytest.param("dana", tg.Async(), marks=pytest.mark.stress),
        pytest.param("sgd", tg.SoftSync(groups=2), marks=pytest.mark.stress),
    ],
    ids=str,
)
def test_versions_made_where_workers_read_them_replay_bit_for_bit(
    rule: str, policy: Policy, pool: ActorPool
) -> None:
    """Of shards so large that they are: θ itself, and what is sent in its place."""
    task = tg.FunctionTask(torch.linspace(-1, 1, 2 * WORTH_FOLLOWING), stepping)
    run_and_replay(policy, rule, pool, updates=12, task=task)


def stepping(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
    return torch.sin(view * (1 + worker)) + 0.01 * step


def test_evaluations_are_of_exactly_those_versions(pool: ActorPool) -> None:
    rule = rules.RULES["sgd"](lr=0.05)
    processes = tg.Processes(pool=pool)
    run = train(TASK, rule, tg.Sync(), workers=3, updates=30, evaluation=10, processes=processes)
    replayed = tg.execute(run.schedule, TASK, rule, engine="exact", evaluation=10)
    keep = ("update", "samples", "epoch", "batch_loss", "validation_loss", "validation_accuracy")
    for mine, theirs in zip(run.history.records, replayed.history.records, strict=True):
        assert {k: mine.get(k) for k in keep} == {k: theirs.get(k) for k in keep}


def test_batchnorm_buffers_follow_shard_0(pool: ActorPool) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    data = Data(Split(torch.randn(90, 6), torch.randint(0, 3, (90,))))
    task = tg.ModuleTask(module, "cross_entropy", data, batch_size=8)
    rule = rules.RULES["gap_aware"](lr=0.05)
    processes = tg.Processes(pool=pool)
    run = train(task, rule, tg.Async(), workers=3, shards=2, updates=40, processes=processes)
    replayed = tg.execute(run.schedule, task, rule, engine="exact")
    assert torch.equal(replayed.params, run.params)
    assert len(run.buffers) == 3
    assert all(map(torch.equal, run.buffers, replayed.buffers))
    assert not torch.equal(run.buffers[0], task.start_buffers()[0])


def test_workers_come_and_go(pool: SparePool) -> None:
    rule = rules.RULES["dana_ga"](lr=0.02)
    changes = [Change(10), Change(25, remove=0)]
    times = tg.Gamma(workers=5, mean_s=0.02)
    pool.have_ready(workers=4)  # starting one may take longer than the whole run
    run = train(
        TASK, rule, tg.Async(), workers=3, shards=2, updates=100,
        processes=tg.Processes(pool=pool, patience=Patience(poll_s=0.05)),
        scenario=tg.Scenario(impose=times, changes=changes),
    )  # fmt: skip
    assert_replays(run, TASK, rule, 100)
    schedule = run.schedule
    assert schedule.workers == 4
    assert schedule.member_worker.tolist() == [3, 0]
    assert schedule.member_joined.tolist() == [1, 0]
    assert (schedule.applied > 0).all()


def test_a_run_ends_when_its_updates_are_made_and_not_at_the_next_poll(pool: ActorPool) -> None:
    begun, seldom = time.monotonic(), Patience(poll_s=200.0)
    processes = tg.Processes(pool=pool, patience=seldom)
    run = train(TASK, rules.sgd(lr=0.05), workers=2, shards=2, updates=20, processes=processes)
    assert run.schedule.updates == 20
    assert time.monotonic() - begun < seldom.poll_s


def test_imposed_times_are_kept_on_average(pool: ActorPool) -> None:
    """A sleep ends more than 0.1 ms late; what one step takes too long, the next one saves."""
    times = tg.Constant(2, 0.005)
    rule = rules.RULES["sgd"](lr=0.05)
    processes, scenario = tg.Processes(pool=pool), tg.Scenario(impose=times)
    run = train(TASK, rule, workers=2, updates=200, processes=processes, scenario=scenario).schedule
    took_s = (run.end_s - run.start_s)[np.isfinite(run.start_s)]
    assert abs(np.nanmedian(took_s) - 0.005) < 0.00005


class Weighs(nn.Module):
    """Two inputs by name, and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, left: Tensor, right: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.left(left) + self.right(right)
        return {"loss": nn.functional.cross_entropy(logits, labels)}


def slower(update: int) -> float:
    return 0.05 / (1 + update)


@pytest.mark.parametrize("kind", [torch.optim.NAdam, torch.optim.Adafactor])
def test_ones_own_model_and_an_optimizer_of_torchs_replay_bit_for_bit(
    kind: type[torch.optim.Optimizer], pool: ActorPool
) -> None:
    points = torch.linspace(-1, 1, 320).reshape(2, 40, 4)
    samples = {"left": points[0], "right": points[1].cos(), "labels": torch.arange(40) % 3}
    task = tg.ModuleTask(Weighs(), "model", samples, 4, precision="bf16")
    rule = rules.torch_optimizer(kind, slower)
    run = train(
        task,
        rule,
        tg.Async(),
        workers=3,
        shards=2,
        shard_by="tensor",
        updates=40,
        processes=tg.Processes(pool=pool),
    )
    assert_replays(run, task, rule, 40, shard_by="tensor")
