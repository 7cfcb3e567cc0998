"""Timelines: nothing is lost or overlaps, the trace obeys the format, the picture is drawn."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tardigrad.clusters import Absence, Constant, Exponential, Network
from tardigrad.policies import Async, Sync
from tardigrad.report.perfetto import trace_events, write_trace
from tardigrad.report.timeline import draw_timeline, push_outcomes, spans
from tardigrad.scheduling import Schedule, schedule


def disturbed() -> Schedule:
    absences = (Absence(1, 3.3, 6.1), Absence(2, 7.7))
    network = Network(latency_s=0.1, jitter=0.5)
    cluster = Exponential(workers=4, absences=absences, network=network)
    return schedule(Async(), cluster, updates=60, shards=2)


def check_trace_event_format(trace: dict[str, Any]) -> None:
    """The rules of the trace-event format for the phases used: metadata, complete and instant."""
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named = set()
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            named.add((event["pid"], event.get("tid")))
            continue
        assert isinstance(event["tid"], int)
        assert isinstance(event["cat"], str)
        assert isinstance(event["ts"], int | float)
        assert math.isfinite(event["ts"])
        assert event["ts"] >= 0
        assert isinstance(event.get("args", {}), dict)
        assert {(event["pid"], None), (event["pid"], event["tid"])} <= named
        if event["ph"] == "X":
            assert math.isfinite(event["dur"])
            assert event["dur"] >= 0
        else:
            assert event["ph"] == "i"
            assert event["s"] in ("g", "p", "t")


@pytest.mark.parametrize("make", [disturbed, lambda: Schedule.from_order([0, 1, 1, 0], 3)])
def test_the_trace_obeys_the_format(make: Callable[[], Schedule], tmp_path: Path) -> None:
    made = make()
    write_trace(made, tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text(), parse_constant=pytest.fail)
    check_trace_event_format(trace)
    updates = [e for e in trace["traceEvents"] if e["name"] == "update"]
    assert len(updates) == made.groups
    for shard in range(made.shards):
        versions = [e["args"]["version"] for e in updates if e["tid"] == shard]
        assert versions == list(range(1, len(versions) + 1))
    timed = [e["ts"] for e in trace["traceEvents"] if "ts" in e]
    assert timed == sorted(timed)


def test_a_trace_can_stop_early() -> None:
    made = disturbed()
    short = trace_events(made, updates=10)
    check_trace_event_format(short)
    last = made.group_time_s[9] * 1e6
    assert max(e["ts"] + e.get("dur", 0) for e in short["traceEvents"] if "ts" in e) <= last + 1e-6
    assert sum(e["name"] == "update" for e in short["traceEvents"]) == 10


def test_a_worker_does_one_thing_at_a_time_and_nothing_is_missing() -> None:
    made = disturbed()
    end = made.end_time
    for worker in range(made.workers):
        own = sorted(s for s in spans(made, end) if s.worker == worker)
        for one, following in itertools.pairwise(own):
            assert one.to_s <= following.from_s + 1e-12
        absent = sum(s.to_s - s.from_s for s in own if s.what == "absent")
        assert absent == pytest.approx({1: 6.1 - 3.3, 2: end - 7.7}.get(worker, 0.0))
    gradients = [s.row for s in spans(made, end) if s.row >= 0]
    assert len(gradients) == len(set(gradients)) == int((made.start_s < end).sum())


def test_waiting_is_what_the_schedule_says() -> None:
    made = schedule(Sync(), Constant(workers=3, step_s=(1.0, 2.0, 4.0)), updates=5)
    waited = [s for s in spans(made, made.end_time) if s.what == "waiting"]
    for worker, expected in enumerate(made.waiting_s):
        assert sum(s.to_s - s.from_s for s in waited if s.worker == worker) == expected
    assert set(push_outcomes(made)[:15]) == {0}


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw_timeline(disturbed(), tmp_path / "timeline.png")
    draw_timeline(schedule(Sync(), Exponential(workers=60), updates=30), tmp_path / "many.png")
    for name in ("timeline.png", "many.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
