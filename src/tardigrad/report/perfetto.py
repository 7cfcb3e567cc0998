"""A schedule as a trace file that ui.perfetto.dev and chrome://tracing open."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tardigrad.core.checks import count
from tardigrad.report.timeline import spans
from tardigrad.scheduling import Schedule

WORKERS, SHARDS = 1, 2
"""Process numbers: workers are the threads of one, shards of the other."""


def trace_events(schedule: Schedule, updates: int | None = None) -> dict[str, Any]:
    """The schedule in the trace-event format: workers as one process, shards as another.

    Complete events ("X") are computing and waiting, instant events ("i") the updates and drops at
    each shard; `updates` limits it to that many of the first groups. Times are microseconds of
    its clock; without a clock one event counts as a second.
    """
    end_s = _until(schedule, updates)
    events = [_name(WORKERS, None, "workers"), _name(SHARDS, None, "shards")]
    events += [_name(WORKERS, w, f"worker {w}") for w in range(schedule.workers)]
    events += [_name(SHARDS, s, f"shard {s}") for s in range(schedule.shards)]
    timed = [*_worker_events(schedule, end_s), *_shard_events(schedule, end_s)]
    timed.sort(key=lambda event: event["ts"])
    return {
        "traceEvents": events + timed,
        "displayTimeUnit": "ms",
        "otherData": {"clock": "events" if schedule.clockless else f"{schedule.clock} seconds"},
    }


def write_trace(schedule: Schedule, path: str | Path, updates: int | None = None) -> None:
    """Write the trace as one JSON file."""
    text = json.dumps(trace_events(schedule, updates), allow_nan=False, separators=(",", ":"))
    Path(path).write_text(text, encoding="utf-8")


def _until(schedule: Schedule, updates: int | None) -> float:
    if updates is None or updates >= schedule.groups:
        return schedule.end_time
    count("updates", updates)
    return float(schedule.group_time_s[updates - 1])


def _name(pid: int, tid: int | None, name: str) -> dict[str, Any]:
    kind = "process_name" if tid is None else "thread_name"
    event: dict[str, Any] = {"name": kind, "ph": "M", "pid": pid, "args": {"name": name}}
    return event if tid is None else event | {"tid": tid}


def _worker_events(schedule: Schedule, end_s: float) -> list[dict[str, Any]]:
    events = []
    for worker, begin_s, until_s, what, row in spans(schedule, end_s):
        event: dict[str, Any] = {
            "name": what if what in ("waiting", "absent") else "gradient",
            "cat": what,
            "ph": "X",
            "pid": WORKERS,
            "tid": worker,
            "ts": begin_s * 1e6,
            "dur": (until_s - begin_s) * 1e6,
        }
        if event["name"] == "gradient":
            event["args"] = {
                "row": row,
                "step": int(schedule.step[row]),
                "outcome": what,
                "versions read": schedule.read[row].tolist(),
            }
        events.append(event)
    return events


def _shard_events(schedule: Schedule, end_s: float) -> list[dict[str, Any]]:
    events = []
    versions = schedule.group_version
    for group in np.nonzero(schedule.group_time_s <= end_s)[0].tolist():
        rows = schedule.group(group)
        args = {"version": int(versions[group]) + 1, "workers": schedule.worker[rows].tolist()}
        shard, at_s = int(schedule.group_shard[group]), float(schedule.group_time_s[group])
        events.append(_instant("update", shard, at_s, args))
    for drop in np.nonzero(schedule.drop_time_s <= end_s)[0].tolist():
        row = int(schedule.drop_row[drop])
        args = {
            "worker": int(schedule.worker[row]),
            "step": int(schedule.step[row]),
            "reason": schedule.reasons[int(schedule.drop_reason[drop])],
        }
        shard, at_s = int(schedule.drop_shard[drop]), float(schedule.drop_time_s[drop])
        events.append(_instant("drop", shard, at_s, args))
    return events


def _instant(name: str, shard: int, at_s: float, args: dict[str, Any]) -> dict[str, Any]:
    where = {"pid": SHARDS, "tid": shard, "ts": at_s * 1e6}
    return {"name": name, "cat": name, "ph": "i", "s": "t", **where, "args": args}
