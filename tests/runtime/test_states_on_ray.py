"""Workers that keep a state for themselves on Ray: recorded, replayed, killed, resumed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.protocol.run_processes import Patience
from tardigrad.runtime import ActorPool, Live, fail_at, train
from tardigrad.tasks import TASKS
from tests.runtime.processes_of_runs import kill_driver
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays, updates_logged
from tests.runtime.spare_pool import SparePool

TASK = TASKS["logistic_regression"]()
WORK = tg.LocalSteps(4, rules.adamw(1e-3, betas=(0.9, 0.95), weight_decay=0.1))
METHODS: dict[str, tuple[Any, rules.Rule]] = {
    "diloco": (tg.Sync(), rules.sgd(lr=0.7, momentum=0.9, nesterov=True)),
    "delayed_nesterov": (tg.Async(), rules.delayed_nesterov(lr=0.7, every=3)),
}
STRESS = pytest.mark.stress
TIMES = tg.Gamma(workers=3, mean_s=0.004)
"""Of one of the four steps of a gradient."""


@pytest.mark.parametrize(
    ("method", "kill"),
    [
        pytest.param("diloco", False, id="diloco-undisturbed"),
        pytest.param("diloco", True, id="diloco-killed"),
        pytest.param("delayed_nesterov", False, id="delayed_nesterov-undisturbed"),
        pytest.param("delayed_nesterov", True, id="delayed_nesterov-killed", marks=STRESS),
    ],
)
def test_replays_bit_for_bit(method: str, kill: bool, pool: SparePool, tmp_path: Path) -> None:
    """A worker is killed between its pushes: one shard has the gradient, and it is computed again
    for the other, with the state that the worker had. Its next process begins anew."""
    policy, rule = METHODS[method]
    faults, updates = ([fail_at(worker=1, step=5)], 160) if kill else ([], 40)
    if kill:
        pool.have_ready(workers=4)  # else the others may make all updates before it is there
    run = train(
        TASK, rule, policy, workers=3, shards=2, updates=updates, work=WORK,
        checkpoints=tg.Checkpoints(tmp_path, every=10),
        processes=tg.Processes(pool=pool, digest_every=5),
        scenario=tg.Scenario(impose=TIMES, faults=faults),
    )  # fmt: skip
    assert_replays(run, TASK, rule, updates, work=WORK)
    assert_nothing_lost_or_twice(tmp_path, 2, updates)
    anew = run.schedule.fresh_rows & (run.schedule.step > 0)
    assert run.schedule.worker[anew].tolist() == ([1] if kill else [])
    replayed = tg.Run.load(tmp_path, task=TASK, rule=rule)
    assert replayed.schedule == run.schedule


@pytest.mark.parametrize(
    "kill", [pytest.param(False, id="undisturbed"), pytest.param(True, id="killed", marks=STRESS)]
)
def test_steps_follow_speeds_and_replay(kill: bool, pool: ActorPool, tmp_path: Path) -> None:
    """Worker 2 takes four times as long for a step, and so soon makes one where others make 4."""
    _, rule = METHODS["delayed_nesterov"]
    times = tg.Constant(workers=3, step_s=(0.01, 0.01, 0.04))
    run = train(
        TASK, rule, tg.DyLU(tg.Async()), workers=3, shards=2, updates=60, work=WORK,
        checkpoints=tg.Checkpoints(tmp_path, every=25),
        processes=tg.Processes(pool=pool, digest_every=5),
        scenario=tg.Scenario(impose=times, faults=[fail_at(worker=1, step=5)] if kill else []),
    )  # fmt: skip
    assert_replays(run, TASK, rule, 60, work=WORK)
    steps, slow = run.schedule.steps, run.schedule.worker == 2
    assert steps[slow][0] == 4
    assert steps[slow][2:].mean() < 2 < steps[~slow].mean()
    assert tg.Run.load(tmp_path, task=TASK, rule=rule).schedule == run.schedule


def test_a_shard_comes_back_with_what_workers_keep(pool: ActorPool, tmp_path: Path) -> None:
    policy, rule = METHODS["delayed_nesterov"]
    run = train(
        TASK, rule, policy, workers=3, shards=2, updates=60, work=WORK,
        checkpoints=tg.Checkpoints(tmp_path, every=10),
        processes=tg.Processes(pool=pool, digest_every=5, patience=Patience(poll_s=0.05)),
        scenario=tg.Scenario(impose=TIMES, faults=[fail_at(shard=0, version=27)]),
    )  # fmt: skip
    assert list(tmp_path.glob("cuts/*/states.*.safetensors"))
    assert_replays(run, TASK, rule, 60, work=WORK)


DRIVER = """
import sys
import tardigrad as tg
from tardigrad import rules
from tests.runtime.test_states_on_ray import METHODS, TASK, TIMES, WORK
folder, address, method = sys.argv[1:]
policy, rule = METHODS[method]
tg.train(
    TASK, rule, policy, workers=2, shards=2, updates=60, work=WORK,
    checkpoints=tg.Checkpoints(folder, every=10), processes=tg.Processes(address, digest_every=5),
    scenario=tg.Scenario(impose=TIMES),
)
"""


def kill(folder: Path, method: str) -> int:
    """A driver that is a process of its own."""
    address = ray.get_runtime_context().gcs_address
    return kill_driver(DRIVER, [str(folder), address, method], folder, 25)


def begun(pool: ActorPool, folder: Path, method: str, **more: Any) -> tg.Run:
    policy, rule = METHODS[method]
    return train(
        TASK, rule, policy, workers=2, shards=2, updates=60, work=WORK,
        checkpoints=tg.Checkpoints(folder, every=10, resume=folder.exists()),
        processes=tg.Processes(pool=pool, digest_every=5, patience=Patience(poll_s=0.05)),
        scenario=tg.Scenario(impose=TIMES), **more,
    )  # fmt: skip


def interrupt(pool: ActorPool, folder: Path, method: str) -> int:
    """What a driver leaves when it is stopped is what it leaves when it is killed."""

    def stop(live: Live) -> None:
        if min(shard.version for shard in live.shards) >= 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun(pool, folder, method, watch=stop)
    return updates_logged(folder, 0)


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.stress)])
@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_driver_goes_on_with_what_workers_kept(
    method: str, killed: bool, pool: ActorPool, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    before = kill(folder, method) if killed else interrupt(pool, folder, method)
    run = begun(pool, folder, method)
    assert 25 <= before < 60
    assert_replays(run, TASK, METHODS[method][1], 60, work=WORK)
    assert_nothing_lost_or_twice(folder, 2, 60)
    assert not (run.schedule.fresh_rows & (run.schedule.step > 0)).any()


@pytest.mark.parametrize("said", ["work", "rule"])
def test_clipped_gradients_replay_bit_for_bit(said: str, pool: ActorPool, tmp_path: Path) -> None:
    """Clipped by the worker, before its gradient is divided among shards. Where the work says so,
    one is killed between its pushes: what it computes again for the other shard is clipped too."""
    rule, work = rules.sgd(lr=0.1), tg.OneGradient(clip_norm=0.05)
    if said == "rule":  # as in version 0.1
        with pytest.warns(FutureWarning, match="clip_norm of a rule is now the work's"):
            rule = replace(rule, clip_norm=0.05)
    run = train(
        TASK, rule, tg.Async(), workers=3, shards=2, updates=40,
        work=work if said == "work" else None,
        checkpoints=tg.Checkpoints(tmp_path, every=10),
        processes=tg.Processes(pool=pool, digest_every=5),
        scenario=tg.Scenario(
            impose=TIMES, faults=[fail_at(worker=1, step=5)] if said == "work" else []
        ),
    )  # fmt: skip
    assert run.work == work
    assert_replays(run, TASK, rule, 40, work=None if said == "rule" else work)
    free = tg.execute(run.schedule, TASK, rules.sgd(lr=0.1), "exact")
    assert not torch.allclose(free.params, run.params, atol=1e-3)
