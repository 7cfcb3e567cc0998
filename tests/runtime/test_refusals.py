"""What is refused, by name and before anything has changed."""

import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.layout import Sharding
from tardigrad.engine import Diverged
from tardigrad.policies import Policy
from tardigrad.protocol.admission import Refused
from tardigrad.protocol.calls import AskShard, OpenShard
from tardigrad.protocol.messages import FromWorker, PushHeader
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.gradients import RowPart
from tardigrad.recording.record import read_record
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.replay import replay_recorded
from tardigrad.recording.setup import RunSetup
from tardigrad.runtime import ActorPool, fail_at, reserving, train
from tardigrad.runtime.ray_cluster import check_answers
from tardigrad.runtime.shard_process import ShardProcess, shard_origin
from tardigrad.scheduling import size
from tardigrad.tasks import TASKS
from tests.runtime.run_checks import assert_replays

TASK = TASKS["logistic_regression"](features=5, train_size=60, validation=0)
RULE = rules.RULES["gap_aware"](lr=0.05)


@pytest.mark.parametrize(
    ("numbers", "dtype", "why"),
    [
        (5, torch.float32, "worker 0, step 0, at shard 1: it sent 5 of .* holds 6 numbers"),
        (6, torch.float64, "6 of torch.float64, this shard holds 6 numbers of torch.float32"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_by_name(
    numbers: int, dtype: torch.dtype, why: str, tmp_path: Path
) -> None:
    disk, sharding = FolderDisk(tmp_path), Sharding.divide(TASK.layout, 2)
    setup = RunSetup(TASK, RULE, tg.Async(), sharding, workers=1, updates=10)
    shard = ShardProcess(setup, disk, shard_origin(RecoveredRun(setup, disk), 1, epoch=1))
    shard.call(OpenShard(setup.updates), 0.0)
    header = PushHeader(0, 0, 0, 0, (0, 0), (1, 1), 0.0, 0.1, 0.5, True)
    message = FromWorker(0, 0, 0, 0, 0, 0, header)
    with pytest.raises(Refused, match=why):
        shard.hear(message, RowPart(torch.zeros(numbers, dtype=dtype), ()), 0.0)
    assert shard.hear(message, RowPart(torch.zeros(6), ()), 0.0)  # nothing has changed
    assert shard.call(AskShard(), 0.0)[0].version == 1
    disk.close()


def wrong_shape(view: Tensor, worker: int, step: int) -> Tensor:
    return torch.zeros(3) if (worker, step) == (1, 4) else view


def sometimes_nan(view: Tensor, worker: int, step: int) -> Tensor:
    grad = 0.1 * view
    if worker == 1 and step % 4 == 2:
        grad[-1] = math.nan
    return grad


def always_infinite(view: Tensor, worker: int, step: int) -> Tensor:
    return view * math.inf if step > 5 else view


def test_a_worker_whose_task_is_wrong_ends_the_run_with_its_error(pool: ActorPool) -> None:
    task = tg.FunctionTask(torch.ones(8), wrong_shape)
    with pytest.raises(ValueError, match=r"grad\(view, worker=1, step=4\) must return"):
        # Under Sync it comes to step 4, however late its process begins.
        train(task, RULE, tg.Sync(), workers=2, updates=50, processes=tg.Processes(pool=pool))


@pytest.mark.parametrize("many", [{"workers": 10**9}, {"updates": 10**12}])
def test_more_than_a_machine_can_hold_is_refused_before_ray_starts(
    many: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size, "physical_bytes", lambda: 64 << 30)
    with pytest.raises(ValueError, match="make a schedule that needs at least"):
        train(TASK, RULE, **{"workers": 2, "updates": 10} | many)


@pytest.mark.parametrize(
    "policy", [tg.Async(), tg.Sync(), tg.Partial()], ids=["async", "sync", "psp"]
)
def test_a_nan_is_a_drop_at_every_shard_and_the_run_goes_on(
    policy: Policy, pool: ActorPool
) -> None:
    task = tg.FunctionTask(torch.ones(9), sometimes_nan)
    run = train(
        task,
        RULE,
        policy,
        workers=2,
        shards=2,
        updates=30,
        processes=tg.Processes(pool=pool),
        scenario=tg.Scenario(impose=tg.Constant(2, 0.02)),  # else one may make all updates alone
    )
    assert_replays(run, task, RULE, 30)
    schedule = run.schedule
    assert schedule.reasons == ("not finite",)
    bad = (schedule.worker == 1) & (schedule.step % 4 == 2) & np.isfinite(schedule.end_s)
    assert set(schedule.drop_row.tolist()) == set(np.nonzero(bad)[0].tolist())
    assert len(schedule.drop_row) == 2 * bad.sum()
    assert schedule.dropped.tolist() == [0, bad.sum()]
    assert not bad[schedule.group_rows].any()


def test_gradients_that_are_no_numbers_are_a_diverged_run(pool: ActorPool) -> None:
    task = tg.FunctionTask(torch.ones(8), always_infinite)
    with pytest.raises(Diverged, match=r"a gradient became (-?inf|nan) .*: the run has diverged"):
        train(task, RULE, workers=2, updates=500, processes=tg.Processes(pool=pool))


def the_same_everywhere(view: Tensor, worker: int, step: int) -> Tensor:
    return torch.full_like(view, 1e30)


def test_parameters_that_fly_away_are_told_though_gradients_are_finite(pool: ActorPool) -> None:
    task = tg.FunctionTask(torch.ones(8), the_same_everywhere)
    with pytest.raises(Diverged, match=r"a parameter became -inf at update 5"):
        train(task, rules.sgd(lr=1e9), workers=2, updates=5, processes=tg.Processes(pool=pool))


def test_an_address_where_nobody_answers_is_told_soon() -> None:
    begun = time.monotonic()
    with pytest.raises(ValueError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 "):
        check_answers("127.0.0.1:1")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("address", ["nowhere", "ray://host:1", "host:port"])
def test_an_address_that_is_none_is_told(address: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT of a cluster's head node"):
        check_answers(address)


def test_more_actors_than_fit_are_told_at_once(
    ray_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray is given time to place what may fit, and not where even empty nodes have too little."""
    monkeypatch.setattr(reserving, "AT_ONCE_S", 60.0)
    begun = time.monotonic()
    missing = r"20 workers \(1 CPU each\) and 1 shard .*: 21 CPUs are needed, and 8 of 8 are free"
    with pytest.raises(ValueError, match=missing):
        train(TASK, RULE, workers=20, shards=1, updates=5, processes=tg.Processes(wait_s=0))
    assert time.monotonic() - begun < 30


def test_a_folder_in_use_and_a_folder_of_another_run(pool: ActorPool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"workers": 2, "updates": 10, "processes": tg.Processes(pool=pool)}
    options["checkpoints"] = tg.Checkpoints(tmp_path)
    train(TASK, RULE, **options)
    with pytest.raises(ValueError, match="already holds a run on Ray"):
        train(TASK, RULE, **options)
    record = read_record(tmp_path)
    assert record["finished"]
    again = options | {"checkpoints": tg.Checkpoints(tmp_path, resume=True)}
    with pytest.raises(ValueError, match=r"has finished: .* unless it gets more updates than 10"):
        train(TASK, RULE, **again)
    with pytest.raises(ValueError, match="of 10 updates, which cannot be made one of 8: give more"):
        train(TASK, RULE, **again | {"updates": 8})
    unfinished(tmp_path)
    other = rules.RULES["gap_aware"](lr=0.06)
    options |= {"updates": 20, "checkpoints": tg.Checkpoints(tmp_path, resume=True)}
    with pytest.raises(ValueError, match=r"another spec.* policy, rule differ"):
        train(TASK, other, tg.Sync(), **options)


def unfinished(folder: Path) -> None:
    path = folder / "record.json"
    path.write_text(path.read_text().replace('"finished": true', '"finished": false'))


Recorded = tuple[tg.Run, dict[str, Any]]


@pytest.fixture(scope="module")
def recorded(pool: ActorPool, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    run = train(
        TASK, RULE, workers=2, shards=2, updates=40, checkpoints=tg.Checkpoints(folder),
        processes=tg.Processes(pool=pool, digest_every=5),
    )  # fmt: skip
    return run, read_record(folder)


def test_a_replay_compares_every_digest(recorded: Recorded) -> None:
    run, record = recorded
    replayed = replay_recorded(run.schedule, TASK, RULE, record)
    assert replayed.difference is None
    assert replayed.compared == 16
    assert torch.equal(replayed.run.params, run.params)


def test_a_replay_names_the_first_version_that_differs(recorded: Recorded) -> None:
    run, record = recorded
    other = rules.RULES["gap_aware"](lr=0.06)
    found = replay_recorded(run.schedule, TASK, other, record).difference
    assert found is not None
    assert found.version == 5
    digests = [[s, v, "0" * 16 if (s, v) == (1, 25) else d] for s, v, d in record["digests"]]
    found = replay_recorded(run.schedule, TASK, RULE, {**record, "digests": digests}).difference
    assert found is not None
    assert (found.shard, found.version) == (1, 25)


def test_a_replay_stops_where_it_is_told_and_saves_that(recorded: Recorded, tmp_path: Path) -> None:
    run, record = recorded
    at = tmp_path / "at.safetensors"
    replayed = replay_recorded(run.schedule, TASK, RULE, record, until=17, checkpoint=at)
    assert replayed.updates == 17
    assert at.exists()
    with pytest.raises(ValueError, match="until = 41, but the run has 40 updates"):
        replay_recorded(run.schedule, TASK, RULE, record, until=41)


@pytest.mark.parametrize(
    ("field", "name"),
    [("data", "data set"), ("numpy", "numpy version"), ("torch", "torch version")],
)
def test_a_replay_with_something_else_is_refused_by_its_name(
    recorded: Recorded, field: str, name: str
) -> None:
    run, record = recorded
    changed = {**record, "facts": {**record["facts"], field: "other"}}
    with pytest.raises(ValueError, match=rf"recorded with another {name} \(recorded other, here"):
        replay_recorded(run.schedule, TASK, RULE, changed)
    assert replay_recorded(run.schedule, TASK, RULE, changed, force=True).difference is None


def test_another_data_set_is_another_data_set(recorded: Recorded) -> None:
    run, record = recorded
    task = TASKS["logistic_regression"](features=5, train_size=61, validation=0)
    with pytest.raises(ValueError, match="another data set"):
        replay_recorded(run.schedule, task, RULE, record)


def test_faults_are_checked() -> None:
    with pytest.raises(ValueError, match="fail_at takes worker= and step=, or shard= and version="):
        fail_at(worker=1)
    with pytest.raises(ValueError, match="moment must be one of"):
        fail_at(worker=1, step=0, moment="before_log")


def test_a_local_ray_listens_on_loopback_only_and_asks_for_a_token(ray_here: None) -> None:
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert ray.get_runtime_context().gcs_address.startswith("127.0.0.1:")
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
