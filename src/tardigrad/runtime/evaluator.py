"""Evaluating versions of a run on Ray in the driver's process, while workers go on."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tardigrad.recording.replica import Snapshot
from tardigrad.tasks import Task

RECORDS = "evaluations.jsonl"


class Evaluator:
    """What was measured stands in a file, a line each, so that no driver has to repeat it."""

    def __init__(self, task: Task, folder: Path, began_s: float, splits: Sequence[str]) -> None:
        self.task = task
        self.splits = splits
        self._began_s = began_s
        self._path = folder / RECORDS
        self.records = _whole_lines(self._path)
        self._known = {record["update"] for record in self.records}

    def take(self, parts: list[Snapshot]) -> bool:
        """One version of all shards; whether it was not known yet."""
        first, task = parts[0], self.task
        if first.version in self._known:
            return False
        self._known.add(first.version)
        record: dict[str, float] = {
            "update": first.version,
            "time_s": max(part.time_s for part in parts),
            "wall_s": time.time() - self._began_s,
            "samples": first.samples,
        }
        if task.epoch_size:
            record["epoch"] = first.samples / task.epoch_size
        params = torch.cat([part.theta for part in parts])
        averages = [part.average for part in parts if part.average is not None]
        for split in self.splits:
            measured = task.evaluate(params, first.buffers, split)
            record |= {f"{split}_{name}": value for name, value in measured.items()}
            if len(averages) == len(parts):
                averaged = task.evaluate(torch.cat(averages), first.buffers, split)
                record |= {f"{split}_{name}_ema": value for name, value in averaged.items()}
        self.records.append(record)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        return True

    def finish(self, losses: list[float], origin_s: float) -> list[dict[str, float]]:
        """The records in order, in the schedule's time, each with the mean batch loss since the
        one before."""
        records = sorted(self.records, key=lambda record: record["update"])
        before = 0
        for record in records:
            record["time_s"] = max(0.0, record["time_s"] - origin_s)
            recent = losses[before : int(record["update"])]
            if recent:
                record["batch_loss"] = sum(recent) / len(recent)
            before = int(record["update"])
        return records


def _whole_lines(path: Path) -> list[dict[str, float]]:
    """A line that a kill or a full disk left unfinished is taken away: it is measured again."""
    if not path.exists():
        return []
    records: list[dict[str, float]] = []
    lines = path.read_bytes().splitlines(keepends=True)
    whole = 0
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            break
        if not line.endswith(b"\n"):
            records.pop()
            break
        whole += len(line)
    with path.open("r+b") as file:
        file.truncate(whole)
    return records
