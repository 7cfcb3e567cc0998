"""What the bits of a run depend on, recorded with it, so that a replay can refuse or explain."""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tardigrad.checks import require
from tardigrad.runtime.server import digest
from tardigrad.tasks import Task

NAMES = {
    "instruction_set": "instruction set",
    "torch": "torch version",
    "machine": "kind of machine",
    "code": "code version",
    "data": "data set",
    "start": "initial parameters",
    "threads": "thread count",
}


def facts_of(task: Task, threads: int) -> dict[str, Any]:
    return {
        "tardigrad": version("tardigrad"),
        "code": code_digest(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "start": digest(task.start()),
        "data": data_digest(task),
    }


def check_facts(recorded: dict[str, Any], here: dict[str, Any]) -> None:
    """Refuse where anything differs that bits depend on, and say what."""
    different = [
        f"{name} (recorded {recorded.get(field)}, here {here.get(field)})"
        for field, name in NAMES.items()
        if recorded.get(field) != here.get(field)
    ]
    require(
        not different,
        "this run was recorded with another " + ", another ".join(different) + ": the same bits "
        "cannot be expected. Replay it where these are the same, or with --force to see how far it "
        "agrees",
    )


def code_digest() -> str:
    """Of the source files that decide a gradient or an update."""
    root = Path(__file__).parent.parent
    found = hashlib.blake2b(digest_size=8)
    for room in ("rules", "tasks", "engine/shard.py", "schedules.py", "layout.py", "keys.py"):
        place = root / room
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            found.update(path.relative_to(root).as_posix().encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def data_digest(task: Task) -> str | None:
    """Of the training data, where the task has any."""
    data = getattr(task, "data", None)
    if data is None:
        return None
    return "-".join(digest(tensor) for tensor in (data.train.inputs, data.train.targets))
