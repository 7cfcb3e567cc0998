"""What every run on Ray must satisfy, whatever happened to it."""

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Literal

import torch

import tardigrad as tg
from tardigrad.protocol.messages import Applied, Dropped
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.merge import pushed
from tardigrad.recording.shard_logs import read_story
from tardigrad.tasks import Task


def assert_replays(
    run: tg.Run,
    task: Task,
    rule: tg.Rule,
    updates: int,
    shard_by: Literal["slice", "tensor"] = "slice",
    work: tg.Work[Any] | None = None,
    codec: tg.Codec | None = None,
) -> None:
    """It made the asked updates, and its schedule executes to the same bits."""
    assert run.schedule.updates == updates
    replayed = tg.execute(
        run.schedule, task, rule, "exact", shard_by=shard_by, work=work, codec=codec
    )
    assert torch.equal(replayed.params, run.params)
    assert replayed.history.loss == run.history.loss


def assert_nothing_lost_or_twice(folder: Path, shards: int, updates: int) -> list[set[int]]:
    """From the logs: every gradient that came is applied once, dropped once, or waits at the end;
    and of every worker a shard got all up to its last one. The rows that came to each shard."""
    came: list[set[int]] = []
    steps: list[dict[int, set[int]]] = []
    for shard in range(shards):
        rows, decided_on = Counter[int](), Counter[int]()
        versions, of_worker = 0, defaultdict[int, set[int]](set)
        for entry in read_story(FolderDisk(folder), shard).entries:
            push = pushed(entry)
            if push is not None:
                rows[push.row] += 1
                of_worker[push.worker].add(push.step)
            for decided in entry.decided:
                if isinstance(decided, Applied):
                    decided_on.update(decided.rows)
                    versions += 1
                elif isinstance(decided, Dropped):
                    decided_on[decided.row] += 1
        assert versions == updates
        assert set(rows.values()) == {1}
        assert set(decided_on.values()) == {1}
        assert set(decided_on) <= set(rows)
        came.append(set(rows))
        steps.append(of_worker)
    for worker in set().union(*steps):
        everywhere = set().union(*(mine[worker] for mine in steps))
        for mine in steps:
            assert mine[worker] == {s for s in everywhere if s <= max(mine[worker], default=-1)}
    return came


def updates_logged(folder: Path, shard: int) -> int:
    """How many updates of a shard its logs hold so far."""
    logs = folder.glob(f"logs/shard-{shard}.*.log")
    return sum(log.read_bytes().count(b'["apply",') for log in logs)


def without_start(lines: list[str]) -> list[str]:
    """What a run said, but for what every run says when it starts."""
    said = re.compile(r"starting \d+ processes on Ray|all processes are at work after")
    return [line for line in lines if not said.match(line)]
