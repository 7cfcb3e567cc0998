"""What is measured on the way stands in a file, whole lines of which survive whoever writes it."""

from pathlib import Path

import pytest
import torch

import tardigrad as tg
from tardigrad.recording.replica import Snapshot
from tardigrad.runtime.evaluator import Evaluator

TASK = tg.FunctionTask(
    torch.ones(4), lambda view, worker, step: view, evaluate=lambda p: {"sum": float(p.sum())}
)


def snapshots(version: int) -> list[Snapshot]:
    """Of two shards."""
    return [
        Snapshot(version, torch.full((2,), float(version)), None, (), 0, 0.5 * version)
        for _ in range(2)
    ]


def evaluator(folder: Path) -> Evaluator:
    return Evaluator(TASK, folder, 0.0, TASK.splits)


def test_a_version_is_measured_once_whoever_asks(tmp_path: Path) -> None:
    first = evaluator(tmp_path)
    for version in (0, 5, 5):
        first.take(snapshots(version))
    again = evaluator(tmp_path)
    assert again.records == first.records
    again.take(snapshots(5))
    again.take(snapshots(10))
    assert [record["update"] for record in again.records] == [0, 5, 10]
    assert [record["update"] for record in evaluator(tmp_path).records] == [0, 5, 10]


@pytest.mark.parametrize("left", [1, 20])
def test_a_torn_line_is_measured_again(left: int, tmp_path: Path) -> None:
    """As a kill or a full disk leaves it; the next line does not go on in it."""
    first = evaluator(tmp_path)
    for version in (0, 5):
        first.take(snapshots(version))
    path = tmp_path / "evaluations.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-left])
    again = evaluator(tmp_path)
    assert [record["update"] for record in again.records] == [0]
    again.take(snapshots(5))
    assert [record["update"] for record in evaluator(tmp_path).records] == [0, 5]


def test_records_are_in_the_schedules_time_with_the_loss_since_the_last(tmp_path: Path) -> None:
    first = evaluator(tmp_path)
    for version in (4, 0, 2):
        first.take(snapshots(version))
    records = first.finish([1.0, 2.0, 3.0, 5.0], origin_s=0.5)
    assert [r["update"] for r in records] == [0, 2, 4]
    assert [r["time_s"] for r in records] == [0.0, 0.5, 1.5]
    assert [r.get("batch_loss") for r in records] == [None, 1.5, 4.0]
