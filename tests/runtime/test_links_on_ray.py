"""Links on Ray: decided and counted as in the simulation, recorded, replayed and recovered."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tardigrad as tg
from tardigrad import rules
from tardigrad.experiment import Spec, replay, run_on_ray
from tardigrad.links import Link
from tardigrad.policies import Policy
from tardigrad.runtime import ActorPool, fail_at, train
from tardigrad.scheduling import Schedule
from tardigrad.tasks import TASKS, Task
from tardigrad.tasks.split import Data, Split
from tests.runtime.run_checks import assert_replays

TASK = TASKS["logistic_regression"](sampling="epoch")
RULE = rules.fasgd(lr=0.01)
SIZE = 4 * len(TASK.start())
LINKS: dict[str, Link] = {
    "every": tg.Every(push=3, pull=2),
    "reapply": tg.BandwidthAware(c_push=0.3, c_pull=0.3),
    "average": tg.BandwidthAware(c_push=0.3, c_pull=0.3, on_drop="average"),
    "budget": tg.Budget(bytes_per_update=SIZE, direction="both"),
}


def crossings(schedule: Schedule, shard: int, pull: bool) -> tuple[list[int], list[float]]:
    """What crossed of one shard in one direction, in order, and the deviations that rode on it."""
    mine = (schedule.wire_shard == shard) & (schedule.wire_pull == int(pull))
    return schedule.wire_sent[mine].tolist(), schedule.wire_deviation[mine].tolist()


@pytest.mark.parametrize("name", LINKS)
def test_every_link_replays_bit_for_bit(name: str, pool: ActorPool) -> None:
    run = train(
        TASK, RULE, tg.Async(), workers=3, shards=2, updates=60, link=LINKS[name], seed=1,
        processes=tg.Processes(pool=pool, digest_every=10),
    )  # fmt: skip
    assert_replays(run, TASK, RULE, 60)
    replayed = tg.execute(run.schedule, TASK, RULE, engine="exact")
    assert run.traffic is not None
    assert run.traffic == replayed.traffic
    assert 0 < run.traffic.push.share < 1
    assert 0 < run.traffic.pull.share < 1
    if name == "budget":  # of its half each way, all shards together
        assert abs(run.traffic.pull.share - 0.5) < 0.1


@pytest.mark.parametrize("name", LINKS)
def test_one_worker_is_as_simulated_to_the_last_bit(name: str, pool: ActorPool) -> None:
    """With one worker there is one order, so that the same gates must say the same."""
    link = LINKS[name]
    real = train(
        TASK, RULE, tg.Async(), workers=1, shards=2, updates=40, link=link, seed=3,
        processes=tg.Processes(pool=pool),
    )  # fmt: skip
    cluster = tg.Constant(1, 1.0)
    simulated = tg.simulate(
        TASK, RULE, tg.Async(), cluster, updates=40, seed=3, shards=2, link=link, engine="exact"
    )
    assert torch.equal(real.params, simulated.params)
    assert real.history.loss == simulated.history.loss
    for shard in range(2):
        for pull in (False, True):
            sent, deviations = crossings(real.schedule, shard, pull)
            as_simulated, expected = crossings(simulated.schedule, shard, pull)
            both = min(len(sent), len(as_simulated))
            assert both >= 40
            assert sent[:both] == as_simulated[:both]
            assert np.array_equal(deviations[:both], expected[:both], equal_nan=True)


def test_without_thresholds_everything_crosses(pool: ActorPool) -> None:
    runs = [
        train(
            TASK, RULE, tg.Async(), workers=1, shards=2, updates=30, link=link,
            processes=tg.Processes(pool=pool),
        )
        for link in (tg.BandwidthAware(), tg.Full())
    ]  # fmt: skip
    assert torch.equal(runs[0].params, runs[1].params)
    assert runs[0].traffic is not None
    assert runs[0].traffic.push.share == runs[0].traffic.pull.share == 1
    assert len(runs[1].schedule.wire_shard) == 0


@pytest.mark.parametrize("shared_memory", [True, False])
def test_buffers_of_gradients_that_were_merged_are_all_folded(
    shared_memory: bool, pool: ActorPool
) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    data = Data(Split(torch.randn(90, 6), torch.randint(0, 3, (90,))))
    task: Task = tg.ModuleTask(module, "cross_entropy", data, batch_size=8)
    run = train(
        task, RULE, tg.Async(), workers=2, shards=2, updates=30, link=tg.Every(push=3, pull=2),
        processes=tg.Processes(pool=pool, shared_memory=shared_memory),
    )  # fmt: skip
    replayed = tg.execute(run.schedule, task, RULE, engine="exact")
    assert torch.equal(replayed.params, run.params)
    assert all(map(torch.equal, run.buffers, replayed.buffers))


@pytest.mark.parametrize("name", ["every", pytest.param("reapply", marks=pytest.mark.stress)])
def test_killed_workers_and_shards_come_back(name: str, pool: ActorPool, tmp_path: Path) -> None:
    faults = [fail_at(worker=1, step=9), fail_at(shard=0, version=23)]
    run = train(
        TASK, RULE, tg.StaleSynchronous(bound=4), workers=3, shards=2, updates=60,
        link=LINKS[name], checkpoints=tg.Checkpoints(tmp_path, 8),
        processes=tg.Processes(pool=pool, digest_every=5),
        scenario=tg.Scenario(impose=tg.Gamma(workers=3, mean_s=0.01), faults=faults),
    )  # fmt: skip
    assert_replays(run, TASK, RULE, 60)


def test_a_file_with_a_link_runs_and_replays(pool: ActorPool, tmp_path: Path) -> None:
    spec = Spec.of(
        {
            "updates": 40,
            "shards": 2,
            "task": {"name": "quadratic", "dimension": 20, "noise": 0.2},
            "rule": {"name": "fasgd", "lr": 0.01},
            "cluster": {"name": "gamma", "workers": 2},
            "link": {"name": "bandwidth_aware", "c_pull": 0.5, "c_push": 0.5},
        }
    )
    run = run_on_ray(spec, tmp_path / "run", pool=pool)
    assert run.traffic is not None
    assert run.traffic.pull.share < 1
    replayed = replay(tmp_path / "run")
    assert replayed.difference is None
    assert torch.equal(replayed.run.params, run.params)
    assert replayed.run.traffic == run.traffic


@pytest.mark.parametrize(
    ("policy", "rule", "link", "message"),
    [
        (tg.Sync(), RULE, tg.Every(push=2), "waits for the gradients of several pushes"),
        (tg.Async(), rules.sgd(lr=0.1), tg.BandwidthAware(), "this rule keeps none"),
    ],
)
def test_what_cannot_be_is_refused(policy: Policy, rule: tg.Rule, link: Link, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(TASK, rule, policy, link=link)
