"""Workers join and leave while the run, or a shard of it, is killed."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad import rules
from tardigrad.protocol.run_processes import Patience
from tardigrad.runtime import ActorPool, Change, train
from tardigrad.tasks import TASKS
from tests.runtime.processes_of_runs import beside, shard_process, until
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays
from tests.runtime.spare_pool import SparePool

TASK = TASKS["logistic_regression"](features=7, classes=3, train_size=100, validation=0)
RULE = rules.RULES["dana_ga"](lr=0.02)
CHANGES = [Change(10), Change(25, remove=0)]
TIMES = tg.Gamma(workers=4, mean_s=0.01)
OFTEN = Patience(poll_s=0.05)
"""So that a change is made soon after the update that it is due at."""


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
        processes=tg.Processes(pool=pool, digest_every=10, patience=OFTEN),
        scenario=tg.Scenario(impose=TIMES, changes=CHANGES),
        say=None if said is None else said.append,
    )


@pytest.fixture
def four(pool: SparePool) -> SparePool:
    """A pool that has the fourth worker at hand: starting one may take longer than a run."""
    pool.have_ready(workers=4)
    return pool


def assert_members_came_and_went(run: tg.Run, folder: Path) -> None:
    assert_replays(run, TASK, RULE, 60)
    assert_nothing_lost_or_twice(folder, 2, 60)
    assert run.schedule.member_worker.tolist() == [3, 0]
    assert run.schedule.member_joined.tolist() == [1, 0]


@pytest.fixture(scope="module")
def whole(pool: SparePool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was not killed."""
    folder = tmp_path_factory.mktemp("changes") / "run"
    pool.have_ready(workers=4)
    assert_members_came_and_went(run_with_changes(pool, folder), folder)
    return folder


@pytest.mark.parametrize("kind", ["joined", "left"])
def test_a_run_killed_between_two_shards_of_a_change_is_resumed(
    kind: str, whole: Path, four: ActorPool, tmp_path: Path
) -> None:
    """Made from a whole run: its logs are cut where shard 0 has been told and shard 1 has not."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
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


@pytest.mark.parametrize("kind", ["joined", "left"])
def test_a_shard_that_dies_during_a_change_is_told_again(
    kind: str, four: ActorPool, tmp_path: Path
) -> None:
    """As soon as it has logged it: releases may still be held."""
    said: list[str] = []

    def told() -> bool:
        logs = tmp_path.glob("logs/shard-1.*.log")
        return any(f'["{kind}",'.encode() in log.read_bytes() for log in logs)

    def kill() -> None:
        until(told, pause_s=0.001)
        os.kill(shard_process(tmp_path, 1), signal.SIGKILL)

    with beside(kill):
        run = run_with_changes(four, tmp_path, said=said)
    assert_members_came_and_went(run, tmp_path)
    assert any(line.startswith("shard 1 died (") for line in said)
