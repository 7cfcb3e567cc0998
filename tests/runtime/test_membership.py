"""Workers join and leave while the run, or a shard of it, is killed."""

import json
import os
import signal
from pathlib import Path

import pytest
import ray

import tardigrad as tg
from tardigrad import rules
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.shard_logs import read_story
from tardigrad.runtime import ActorPool, Change, train
from tardigrad.tasks import TASKS
from tests.runtime.processes_of_runs import beside, shard_process, until
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

TASK = TASKS["logistic_regression"](features=7, classes=3, train_size=100, validation=0)
RULE = rules.RULES["dana_ga"](lr=0.02)
CHANGES = [Change(10), Change(25, remove=0)]
TIMES = tg.Gamma(workers=4, mean_s=0.02)


def run_with_changes(
    pool: ActorPool, folder: Path, resume: bool = False, said: list[str] | None = None
) -> tg.Run:
    return train(
        TASK,
        RULE,
        tg.Sync(),
        workers=3,
        shards=2,
        updates=60,
        checkpoints=tg.Checkpoints(folder, resume=resume),
        processes=tg.Processes(pool=pool, digest_every=10),
        scenario=tg.Scenario(impose=TIMES, changes=CHANGES),
        say=None if said is None else said.append,
    )


@pytest.fixture
def four(pool: ActorPool) -> ActorPool:
    """A pool that has the fourth worker at hand: starting one may take longer than a run."""
    workers = [pool.take("worker") for _ in range(4)]
    ray.get([worker.__ray_ready__.remote() for worker in workers])
    for worker in workers:
        pool.give_back(worker)
    return pool


def assert_members_came_and_went(run: tg.Run, folder: Path) -> None:
    assert_replays(run, TASK, RULE, 60)
    assert_nothing_lost_or_twice(folder, 2, 60)
    assert run.schedule.member_worker.tolist() == [3, 0]
    assert run.schedule.member_joined.tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["joined", "left"])
def test_a_run_killed_between_two_shards_of_a_change_is_resumed(
    kind: str, four: ActorPool, tmp_path: Path
) -> None:
    """Made from a whole run: its logs are cut where shard 0 has been told and shard 1 has not."""
    run_with_changes(four, tmp_path)
    for shard in range(2):
        (path,) = tmp_path.glob(f"logs/shard-{shard}.*.log")
        lines = path.read_bytes().splitlines(keepends=True)
        at = next(i for i, line in enumerate(lines) if f'["{kind}",'.encode() in line)
        path.write_bytes(b"".join(lines[: at + 1 - shard]))
    record = tmp_path / "record.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"finished": False}))
    max(tmp_path.glob("epochs/*")).unlink()  # that of the end
    run = run_with_changes(four, tmp_path, resume=True)
    assert_members_came_and_went(run, tmp_path)


@pytest.mark.parametrize("kind", ["Joined", "Left"])
def test_a_shard_that_dies_during_a_change_is_told_again(
    kind: str, four: ActorPool, tmp_path: Path
) -> None:
    """As soon as it has logged it: releases may still be held."""
    said: list[str] = []

    def kill() -> None:
        disk = FolderDisk(tmp_path)

        def told() -> bool:
            entries = read_story(disk, 1).entries
            return any(type(entry.event).__name__ == kind for entry in entries)

        until(told, pause_s=0.0)
        os.kill(shard_process(tmp_path, 1), signal.SIGKILL)

    with beside(kill):
        run = run_with_changes(four, tmp_path, said=said)
    assert_members_came_and_went(run, tmp_path)
    assert any(line.startswith("shard 1 died (") for line in said)
