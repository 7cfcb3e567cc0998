"""Runs on Ray that are looked at while they go, and stopped."""

import json
import math
from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad.experiment import Spec, replay, run_on_ray
from tardigrad.recording.folder import RunFolder
from tardigrad.recording.record import read_record
from tardigrad.runtime import ActorPool, fail_at, train
from tardigrad.tasks import TASKS
from tests.engine.test_observers import Seen
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

TASK = TASKS["logistic_regression"](sampling="epoch")
RULE = tg.rules.gap_aware(0.02)
MANY = 100_000
POLICIES = (
    tg.Async(),
    tg.Sync(),
    tg.Deadline(timeout_s=0.02),
    tg.SoftSync(groups=2, wait=False),
)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_a_target_ends_a_run_and_what_was_made_replays(
    policy: tg.Async, pool: ActorPool, tmp_path: Path
) -> None:
    seen = Seen()
    run = train(
        TASK,
        RULE,
        policy,
        workers=3,
        shards=2,
        updates=MANY,
        evaluation=20,
        checkpoints=tg.Checkpoints(tmp_path),
        processes=tg.Processes(pool=pool),
        stop=tg.Stop(loss=0.6),
        observers=[seen],
    )
    assert run.ended is not None
    assert run.ended.by == "loss"
    assert seen.ends == [run.ended]
    assert 0 < run.ended.updates == run.schedule.updates < MANY
    assert_replays(run, TASK, RULE, run.schedule.updates)
    record = read_record(tmp_path)
    assert (record["finished"], record["ended_by"]) == (True, "loss")
    assert [r["update"] for r in seen.records] == [r["update"] for r in run.history.records]
    assert seen.records[-1]["validation_loss"] <= 0.6
    (start,) = seen.starts
    assert (start.total, start.updates, start.schedule) == (MANY, 0, None)
    assert all(math.isfinite(tick.loss) for tick in seen.ticks)
    assert seen.lines[0] == "starting 5 processes on Ray"
    assert seen.lines[1].startswith("all processes are at work after")


def test_wall_time_ends_a_run_also_while_processes_die(pool: ActorPool, tmp_path: Path) -> None:
    said: list[str] = []
    run = train(
        TASK,
        RULE,
        workers=2,
        shards=2,
        updates=MANY,
        checkpoints=tg.Checkpoints(tmp_path),
        processes=tg.Processes(pool=pool),
        scenario=tg.Scenario(
            impose=tg.Constant(2, 0.01),
            faults=[fail_at(worker=1, step=10), fail_at(shard=1, version=30)],
        ),
        stop=tg.Stop(wall_s=2.5),
        say=said.append,
    )
    assert {line.split()[0] for line in said if " died (" in line} == {"worker", "shard"}
    assert run.ended is not None
    assert run.ended.by == "wall_s"
    made = run.schedule.updates
    assert made < MANY
    assert_replays(run, TASK, RULE, made)
    assert_nothing_lost_or_twice(tmp_path, 2, made)


def test_virtual_time_and_accuracy_that_nobody_measures_are_refused() -> None:
    with pytest.raises(ValueError, match="a run on Ray takes real time: use wall_s"):
        train(TASK, RULE, updates=10, stop=tg.Stop(virtual_s=3.0))
    with pytest.raises(ValueError, match="would never be measured"):
        train(TASK, RULE, updates=10, stop=tg.Stop(accuracy=0.9))


def test_the_folder_of_a_stopped_run_says_so_and_goes_on_to_another_target(
    pool: ActorPool, tmp_path: Path
) -> None:
    def spec(loss: float) -> Spec:
        return Spec(
            updates=MANY,
            task={"name": "logistic_regression"},
            rule={"name": "sgd", "lr": 0.05},
            cluster={"name": "gamma", "workers": 2},
            evaluate_every=20,
            stop={"loss": loss},
        )

    folder, said, seen = tmp_path / "run", list[str](), Seen()
    done = run_on_ray(spec(0.6), folder, pool=pool, say=said.append, observers=[seen])
    assert said[0] == "starting 3 processes on Ray"
    summary = RunFolder(folder).summary()
    assert (summary["ended_by"], summary["updates"]) == ("loss", done.schedule.updates)
    assert RunFolder(folder).metrics() == done.history.records
    assert json.loads((folder / "summary.json").read_text())["on"] == "ray"
    assert replay(folder).difference is None
    further = run_on_ray(spec(0.5), folder, pool=pool, resume=True)
    assert further.ended is not None
    assert (further.ended.by, further.history.records[-1]["validation_loss"] <= 0.5) == (
        "loss",
        True,
    )
    assert further.schedule.updates > done.schedule.updates
    before = len(done.history.records)
    assert further.history.column("update")[:before] == done.history.column("update")
    assert replay(folder).difference is None
