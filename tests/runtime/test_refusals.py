"""What is refused, by name and before anything has changed."""

import math
import time

import numpy as np
import pytest
import ray
import torch
from in_process import make_setup
from run_checks import assert_replays
from tardigrad.runtime.control import Refused
from tardigrad.runtime.messages import PushHeader
from tardigrad.runtime.setup import Life, Place
from tardigrad.runtime.shard import ShardHost
from tardigrad.runtime.standing import WorkerAddress

import tardigrad as tg
from tardigrad import rules
from tardigrad.engine import Diverged
from tardigrad.runtime import Crew, fail_at, read_record, replay, train
from tardigrad.scheduling import size
from tardigrad.tasks import TASKS

TASK = TASKS["logistic_regression"](features=5, train_size=60, validation=0)
RULE = rules.RULES["gap_aware"](lr=0.05)


@pytest.fixture
def host(ray_here, tmp_path):
    """A shard in this process, with one worker that has pushed nothing yet."""
    shard = ShardHost()
    setup = make_setup(TASK, RULE, tg.Async(), tmp_path, workers=1, shards=2)
    shard.prepare(setup, 1, 0)
    shard.connect(0, WorkerAddress(None, 0, Place.here()))
    yield shard
    shard.final()


def push(host, life=None, numbers=6, dtype=np.float32, **changes):
    header = PushHeader(0, 0, 0, 0, (0, 0), 0.0, 0.1, 0.5, True, 0)._replace(**changes)
    return host.call(life or Life(1, 0), "push", tuple(header), np.zeros(numbers, dtype=dtype))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"numbers": 5}, "worker 0, step 0, at shard 1: it sent 5 numbers .* holds 6"),
        ({"dtype": np.float64}, "6 numbers of torch.float64, this shard holds 6 of torch.float32"),
        ({"read": (0, 3)}, r"it says it read version 3, but .* version 0 and has sent it \[0\]"),
        ({"read": (0, -1)}, "it says it read version -1"),
        ({"read": (0,)}, "it names 1 versions for 2 shards"),
        ({"step": 4}, "worker 0, step 4, at shard 1: its next step is 0"),
    ],
)
def test_a_push_that_cannot_be_is_refused_by_name(host, changes, why):
    with pytest.raises(Refused, match=why):
        push(host, **changes)
    assert host.status().version == 0
    assert len(push(host)) == 1  # and the server goes on
    assert host.status().version == 1


def test_messages_of_earlier_lives_and_other_runs_are_ignored(host):
    host.connect(0, WorkerAddress(None, 2, Place.here()))
    assert push(host, life=Life(1, 1)) == []
    assert push(host, life=Life(99, 2)) == []
    assert host.status().version == 0
    assert len(push(host, life=Life(1, 2))) == 1
    assert push(host, life=Life(1, 2)) == []  # sent again
    assert host.status().version == 1


def wrong_shape(view, worker, step):
    return torch.zeros(3) if (worker, step) == (1, 4) else view


def sometimes_nan(view, worker, step):
    grad = 0.1 * view
    if worker == 1 and step % 4 == 2:
        grad[-1] = math.nan
    return grad


def always_infinite(view, worker, step):
    return view * math.inf if step > 5 else view


def test_a_worker_whose_task_is_wrong_ends_the_run_with_its_error(crew):
    task = tg.FunctionTask(torch.ones(8), wrong_shape)
    with pytest.raises(ValueError, match=r"grad\(view, worker=1, step=4\) must return"):
        train(task, RULE, workers=2, updates=50, processes=tg.Processes(crew=crew))


@pytest.mark.parametrize("many", [{"workers": 10**9}, {"updates": 10**12}])
def test_more_than_a_machine_can_hold_is_refused_before_ray_starts(many, monkeypatch):
    monkeypatch.setattr(size, "physical_bytes", lambda: 64 << 30)
    with pytest.raises(ValueError, match="make a schedule that needs at least"):
        train(TASK, RULE, **{"workers": 2, "updates": 10} | many)


@pytest.mark.parametrize(
    "policy", [tg.Async(), tg.Sync(), tg.Partial()], ids=["async", "sync", "psp"]
)
def test_a_nan_is_a_drop_at_every_shard_and_the_run_goes_on(policy, crew):
    task = tg.FunctionTask(torch.ones(9), sometimes_nan)
    run = train(
        task, RULE, policy, workers=2, shards=2, updates=30, processes=tg.Processes(crew=crew)
    )
    assert_replays(run, task, RULE, 30)
    schedule = run.schedule
    assert schedule.reasons == ("not finite",)
    bad = (schedule.worker == 1) & (schedule.step % 4 == 2) & np.isfinite(schedule.end_s)
    assert set(schedule.drop_row.tolist()) == set(np.nonzero(bad)[0].tolist())
    assert len(schedule.drop_row) == 2 * bad.sum()
    assert schedule.dropped.tolist() == [0, bad.sum()]
    assert not bad[schedule.group_rows].any()


def test_gradients_that_are_no_numbers_are_a_diverged_run(crew):
    task = tg.FunctionTask(torch.ones(8), always_infinite)
    with pytest.raises(Diverged, match=r"a gradient became (-?inf|nan) .*: the run has diverged"):
        train(task, RULE, workers=2, updates=500, processes=tg.Processes(crew=crew))


def the_same_everywhere(view, worker, step):
    return torch.full_like(view, 1e30)


def test_parameters_that_fly_away_are_told_though_gradients_are_finite(crew):
    task = tg.FunctionTask(torch.ones(8), the_same_everywhere)
    with pytest.raises(Diverged, match=r"a parameter became -inf at update 5"):
        train(task, rules.sgd(lr=1e9), workers=2, updates=5, processes=tg.Processes(crew=crew))


def test_an_address_where_nobody_answers_is_told_soon():
    begun = time.monotonic()
    with pytest.raises(ValueError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 "):
        train_elsewhere("127.0.0.1:1")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("address", ["nowhere", "ray://host:1", "host:port"])
def test_an_address_that_is_none_is_told(address):
    with pytest.raises(ValueError, match="is not HOST:PORT of a cluster's head node"):
        train_elsewhere(address)


def train_elsewhere(address):
    from tardigrad.runtime.ray_cluster import check_answers

    check_answers(address)


def test_more_actors_than_fit_are_told(ray_here):
    with pytest.raises(ValueError, match="only 8 of them fit: use fewer, or add nodes"):
        train(TASK, RULE, workers=20, shards=1, updates=5)


def test_a_folder_in_use_and_a_folder_of_another_run(crew, tmp_path):
    options = {"workers": 2, "updates": 10, "processes": tg.Processes(crew=crew)}
    options["checkpoints"] = tg.Checkpoints(tmp_path)
    train(TASK, RULE, **options)
    with pytest.raises(ValueError, match="already holds a run on Ray"):
        train(TASK, RULE, **options)
    record = read_record(tmp_path)
    assert record["finished"]
    unfinished(tmp_path)
    other = rules.RULES["gap_aware"](lr=0.06)
    options |= {"updates": 20, "checkpoints": tg.Checkpoints(tmp_path, resume=True)}
    with pytest.raises(ValueError, match=r"another spec.* updates, policy, rule differ"):
        train(TASK, other, tg.Sync(), **options)


def unfinished(folder):
    path = folder / "record.json"
    path.write_text(path.read_text().replace('"finished": true', '"finished": false'))


@pytest.fixture(scope="module")
def recorded(crew, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    run = train(
        TASK, RULE, workers=2, shards=2, updates=40, checkpoints=tg.Checkpoints(folder),
        processes=tg.Processes(crew=crew, digest_every=5),
    )  # fmt: skip
    return run, read_record(folder)


def test_a_replay_compares_every_digest(recorded):
    run, record = recorded
    replayed = replay(run.schedule, TASK, RULE, record)
    assert replayed.difference is None
    assert replayed.compared == 16
    assert torch.equal(replayed.run.params, run.params)


def test_a_replay_names_the_first_version_that_differs(recorded):
    run, record = recorded
    other = rules.RULES["gap_aware"](lr=0.06)
    found = replay(run.schedule, TASK, other, record).difference
    assert found is not None
    assert found.version == 5
    digests = [[s, v, "0" * 16 if (s, v) == (1, 25) else d] for s, v, d in record["digests"]]
    found = replay(run.schedule, TASK, RULE, {**record, "digests": digests}).difference
    assert (found.shard, found.version) == (1, 25)


def test_a_replay_stops_where_it_is_told_and_saves_that(recorded, tmp_path):
    run, record = recorded
    at = tmp_path / "at.safetensors"
    replayed = replay(run.schedule, TASK, RULE, record, until=17, checkpoint=at)
    assert replayed.updates == 17
    assert at.exists()
    with pytest.raises(ValueError, match="until = 41, but the run has 40 updates"):
        replay(run.schedule, TASK, RULE, record, until=41)


@pytest.mark.parametrize(
    ("field", "name"),
    [("data", "data set"), ("numpy", "numpy version"), ("torch", "torch version")],
)
def test_a_replay_with_something_else_is_refused_by_its_name(recorded, field, name):
    run, record = recorded
    changed = {**record, "facts": {**record["facts"], field: "other"}}
    with pytest.raises(ValueError, match=rf"recorded with another {name} \(recorded other, here"):
        replay(run.schedule, TASK, RULE, changed)
    assert replay(run.schedule, TASK, RULE, changed, force=True).difference is None


def test_another_data_set_is_another_data_set(recorded):
    run, record = recorded
    task = TASKS["logistic_regression"](features=5, train_size=61, validation=0)
    with pytest.raises(ValueError, match="another data set"):
        replay(run.schedule, task, RULE, record)


def test_faults_are_checked():
    with pytest.raises(ValueError, match="fail_at takes worker= and step=, or shard= and version="):
        fail_at(worker=1)
    with pytest.raises(ValueError, match="moment must be one of"):
        fail_at(worker=1, step=0, moment="before_log")


def test_a_local_ray_listens_on_loopback_only_and_asks_for_a_token(ray_here):
    import os

    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert ray.get_runtime_context().gcs_address.startswith("127.0.0.1:")
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
    assert isinstance(Crew(), Crew)
