"""A schedule as a trace file that ui.perfetto.dev and chrome://tracing open.

Open https://ui.perfetto.dev, or its copy on your own machine, and drop the file onto it; it is read
there and sent nowhere. Click a gradient for its delay and for the arrows of its pull and push.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tardigrad.core.arrays import Floats
from tardigrad.core.checks import count
from tardigrad.report.pushes import Pushes, pushes
from tardigrad.report.timeline import spans
from tardigrad.scheduling import Schedule

WORKERS, SHARDS = 1, 2
"""Process numbers: workers are the threads of one, shards of the other."""


def trace_events(schedule: Schedule, updates: int | None = None) -> dict[str, Any]:
    """The schedule in the trace-event format: workers as one process, shards as another.

    Complete events ("X") are computing and waiting at workers and updates at shards, instant events
    ("i") the drops and the headers of what was interrupted; counters ("C") are the shards'
    versions. Flows ("s" to "f") are arrows: a pull leads from the update that made the version to
    the gradient that read it, a push from there to the update that it was applied in. `updates`
    limits it to that many of the first groups. Times are microseconds of its clock; without a clock
    one event counts as a second.
    """
    end_s = _until(schedule, updates)
    events = [_name(WORKERS, None, "workers"), _name(SHARDS, None, "shards")]
    events += [_name(WORKERS, w, f"worker {w}") for w in range(schedule.workers)]
    events += [_name(SHARDS, s, f"shard {s}") for s in range(schedule.shards)]
    arrived = pushes(schedule)
    timed = [*_worker_events(schedule, arrived, end_s), *_shard_events(schedule, end_s)]
    timed += _flows(schedule, arrived, end_s)
    # An arrow is tied to the slice that is open then: of one moment, slices come first.
    timed.sort(key=lambda event: (event["ts"], event["ph"] in "sf"))
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


def _worker_events(schedule: Schedule, arrived: Pushes, end_s: float) -> list[dict[str, Any]]:
    events = []
    latest = arrived.latest
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
                "versions at push": arrived.version[row].tolist(),
                "delay": int(latest[row]),
            }
            if latest[row] < 0:  # no shard has applied it
                del event["args"]["delay"]
        events.append(event)
    return events


def _shard_events(schedule: Schedule, end_s: float) -> list[dict[str, Any]]:
    events = [_counter(shard, 0.0, 0) for shard in range(schedule.shards)]
    versions, lasts_s = schedule.group_version, _update_lengths_s(schedule)
    stopped = schedule.interrupted
    for group in np.nonzero(schedule.group_time_s <= end_s)[0].tolist():
        rows = schedule.group(group)
        version = int(versions[group]) + 1
        args = {"version": version, "workers": schedule.worker[rows].tolist()}
        shard, at_s = int(schedule.group_shard[group]), float(schedule.group_time_s[group])
        where = {"pid": SHARDS, "tid": shard, "ts": at_s * 1e6}
        until_s = min(at_s + float(lasts_s[group]), end_s)
        shown = {"name": "update", "cat": "update", "ph": "X", "dur": (until_s - at_s) * 1e6}
        events += [{**shown, **where, "args": args}, _counter(shard, at_s, version)]
    for drop in np.nonzero(schedule.drop_time_s <= end_s)[0].tolist():
        row = int(schedule.drop_row[drop])
        args = {
            "worker": int(schedule.worker[row]),
            "step": int(schedule.step[row]),
            "reason": schedule.reasons[int(schedule.drop_reason[drop])],
        }
        shard, at_s = int(schedule.drop_shard[drop]), float(schedule.drop_time_s[drop])
        events.append(_instant("interrupted" if stopped[row] else "drop", shard, at_s, args))
    return events


def _update_lengths_s(schedule: Schedule) -> Floats:
    """How long updates look: a tenth of the time to the next. They take none, and what takes none
    can be no end of an arrow."""
    out = np.zeros(schedule.groups)
    for shard in range(schedule.shards):
        mine = schedule.group_shard == shard
        at_s = schedule.group_time_s[mine]
        gaps = np.diff(at_s)
        out[mine] = np.append(gaps, gaps.mean() if len(gaps) else 0.0)[: len(at_s)] / 10
    return out


def _flows(schedule: Schedule, arrived: Pushes, end_s: float) -> list[dict[str, Any]]:
    """The arrows whose both ends are there, of each gradient at each shard."""
    events = []
    for shard in range(schedule.shards):
        made_s = schedule.group_time_s[schedule.group_shard == shard]
        for row in np.nonzero(schedule.start_s < end_s)[0].tolist():
            read, began_s = int(schedule.read[row, shard]), float(schedule.start_s[row])
            worker = (WORKERS, int(schedule.worker[row]), began_s)
            number = 2 * (row * schedule.shards + shard)
            if read > 0:  # nothing made version 0
                events += _arrow("pull", number, (SHARDS, shard, float(made_s[read - 1])), worker)
            if arrived.applied[row, shard] and arrived.time_s[row, shard] <= end_s:
                applied = (SHARDS, shard, float(arrived.time_s[row, shard]))
                events += _arrow("push", number + 1, worker, applied)
    return events


def _arrow(
    name: str, number: int, begin: tuple[int, int, float], end: tuple[int, int, float]
) -> list[dict[str, Any]]:
    """Two events: `begin` and `end` are a process, a thread and a time in seconds."""
    same = {"name": name, "cat": "flow", "id": number}
    (pid, tid, from_s), (to_pid, to_tid, to_s) = begin, end
    return [
        {**same, "ph": "s", "pid": pid, "tid": tid, "ts": from_s * 1e6},
        {**same, "ph": "f", "bp": "e", "pid": to_pid, "tid": to_tid, "ts": to_s * 1e6},
    ]


def _counter(shard: int, at_s: float, version: int) -> dict[str, Any]:
    where = {"pid": SHARDS, "tid": shard, "ts": at_s * 1e6}
    name = f"version of shard {shard}"
    return {"name": name, "cat": "version", "ph": "C", **where, "args": {"version": version}}


def _instant(name: str, shard: int, at_s: float, args: dict[str, Any]) -> dict[str, Any]:
    where = {"pid": SHARDS, "tid": shard, "ts": at_s * 1e6}
    return {"name": name, "cat": name, "ph": "i", "s": "t", **where, "args": args}
