"""One file per schedule: safetensors with a digest, so that nothing truncated or altered loads."""

import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tardigrad.scheduling.schedule import Schedule
from tardigrad.scheduling.validate import validate

FORMAT = "tardigrad-schedule-1"
_PLAIN = ("workers", "shards", "reasons", "clockless", "about")
_UNREAD = {"reply_shard", "reply_extra", "reply_after"}
"""What no execution reads."""
_OPTIONAL = {*_UNREAD, "fresh", "group_weights", "steps"}
"""Left out where they are empty, as in files that are older than they."""


def save_schedule(schedule: Schedule, path: Path) -> None:
    arrays, plain = _parts(schedule)
    metadata = {"format": FORMAT, "plain": plain, "sha256": _digest(arrays, plain)}
    partial = path.with_name(path.name + ".partial")
    save_file(arrays, partial, metadata=metadata)
    os.replace(partial, path)


def load_schedule(path: Path) -> Schedule:
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ValueError(f"there is no schedule file {path}") from None
    except SafetensorError as error:
        raise ValueError(
            f"{path} is truncated or not a schedule file ({error}): make the schedule again"
        ) from error
    if metadata.get("format") != FORMAT:
        found = metadata.get("format", "no format")
        raise ValueError(f"{path} is not a {FORMAT} file (it says {found})")
    plain = metadata.get("plain", "")
    expected = {f.name for f in fields(Schedule)} - set(_PLAIN)
    complete = expected - _OPTIONAL <= set(arrays) <= expected
    if not complete or _digest(arrays, plain) != metadata.get("sha256"):
        raise ValueError(
            f"{path} was altered or damaged: its contents do not match its digest; "
            "make the schedule again or restore the file"
        )
    values: dict[str, Any] = json.loads(plain)
    values["reasons"] = tuple(values["reasons"])
    schedule = Schedule(**values, **arrays)
    validate(schedule, str(path))
    return schedule


def schedule_digest(schedule: Schedule) -> str:
    """The SHA-256 of everything that an execution reads: all but what was sent beyond the rule,
    so that a run that was begun when that was not recorded can go on."""
    arrays, plain = _parts(schedule)
    return _digest({n: a for n, a in arrays.items() if n not in _UNREAD}, plain)


def _parts(schedule: Schedule) -> tuple[dict[str, "np.ndarray[Any, Any]"], str]:
    arrays = {
        f.name: np.ascontiguousarray(getattr(schedule, f.name))
        for f in fields(schedule)
        if f.name not in _PLAIN
    }
    arrays = {n: a for n, a in arrays.items() if len(a) or n not in _OPTIONAL}
    plain = json.dumps({name: getattr(schedule, name) for name in _PLAIN}, sort_keys=True)
    return arrays, plain


def _digest(arrays: dict[str, "np.ndarray[Any, Any]"], plain: str) -> str:
    digest = hashlib.sha256(plain.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}:{array.dtype}:{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
