"""Timelines: nothing is lost or overlaps, the trace obeys the format, the picture is drawn."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tardigrad.clusters import Absence, Constant, Exponential, Network
from tardigrad.policies import Async, Backup, Sync
from tardigrad.report.perfetto import trace_events, write_trace
from tardigrad.report.pushes import pushes
from tardigrad.report.timeline import draw_timeline, draw_timelines, push_outcomes, spans
from tardigrad.scheduling import Schedule, schedule


def disturbed() -> Schedule:
    absences = (Absence(1, 3.3, 6.1), Absence(2, 7.7))
    network = Network(latency_s=0.1, jitter=0.5)
    cluster = Exponential(workers=4, absences=absences, network=network)
    return schedule(Async(), cluster, updates=60, shards=2)


def check_trace_event_format(trace: dict[str, Any]) -> None:
    """The rules of the trace-event format for the phases used: metadata, complete and instant
    events, counters and flows."""
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
        elif event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
        elif event["ph"] in "sf":
            assert isinstance(event["id"], int)
            assert event["ph"] == "s" or event["bp"] == "e"
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


def slice_at(trace: dict[str, Any], flow: dict[str, Any]) -> dict[str, Any]:
    """The slice that is open where an end of an arrow is, by the order of the file."""
    upto = trace["traceEvents"][: trace["traceEvents"].index(flow)]
    same = [e for e in upto if (e["pid"], e.get("tid")) == (flow["pid"], flow["tid"])]
    last: dict[str, Any] = [e for e in same if e["ph"] == "X" and e["ts"] <= flow["ts"]][-1]
    assert flow["ts"] <= last["ts"] + last["dur"]
    return last


def test_arrows_lead_from_the_version_read_to_the_gradient_and_on_to_its_update() -> None:
    made = disturbed()
    trace = trace_events(made)
    flows: dict[int, list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] in "sf":
            flows.setdefault(event["id"], []).append(event)
    pulled = pushed = 0
    for ends in flows.values():
        begin, end = sorted(ends, key=lambda e: e["ph"], reverse=True)
        assert (begin["ph"], end["ph"], begin["name"]) == ("s", "f", end["name"])
        source, target = slice_at(trace, begin), slice_at(trace, end)
        gradient, update = (target, source) if begin["name"] == "pull" else (source, target)
        shard, facts = update["tid"], gradient["args"]
        assert (gradient["name"], update["name"]) == ("gradient", "update")
        if begin["name"] == "pull":
            assert update["args"]["version"] == facts["versions read"][shard]
            pulled += 1
        else:
            assert update["args"]["version"] == facts["versions at push"][shard] + 1
            assert gradient["tid"] in update["args"]["workers"]
            pushed += 1
    assert pushed == len(made.group_rows)
    assert pulled == int((made.read[made.start_s < made.end_time] > 0).sum())


def test_gradients_tell_their_delay_and_counters_the_versions() -> None:
    made = schedule(Async(), Exponential(workers=3), updates=40)
    events = trace_events(made)["traceEvents"]
    told = {e["args"]["row"]: e["args"] for e in events if e["name"] == "gradient"}
    late = dict(zip(made.group_rows.tolist(), made.delays.tolist(), strict=True))
    assert late == {row: args["delay"] for row, args in told.items() if "delay" in args}
    counted = [e["args"]["version"] for e in events if e["ph"] == "C"]
    assert counted == list(range(41))


def test_what_arrived_is_told_of_every_shard_and_of_what_was_dropped() -> None:
    """Beside a slow twin, event by event."""
    absences = (Absence(1, 3.3, 6.1),)
    cluster = Exponential(workers=5, absences=absences, network=Network(latency_s=0.1))
    made = schedule(Backup(backups=2), cluster, updates=30, shards=2)
    found = pushes(made)
    expected: dict[tuple[int, int], tuple[int, float, bool]] = {}
    for row, shard, after, at_s in zip(
        made.drop_row, made.drop_shard, made.drop_after, made.drop_time_s, strict=True
    ):
        version = sum(int(s) == shard for s in made.group_shard[:after])
        expected[int(row), int(shard)] = (version, float(at_s), False)
    assert len(expected) > 10
    for group in range(made.groups):
        for row in made.group(group).tolist():
            place = (row, int(made.group_shard[group]))
            assert place not in expected
            version = int(made.group_version[group])
            expected[place] = (version, float(made.group_time_s[group]), True)
    for row in range(made.rows):
        for shard in range(2):
            version, at_s, applied = expected.get((row, shard), (-1, math.nan, False))
            assert found.version[row, shard] == version
            assert found.applied[row, shard] == applied
            assert found.time_s[row, shard] == pytest.approx(at_s, nan_ok=True)
            late = version - int(made.read[row, shard]) if version >= 0 else -1
            assert found.delay[row, shard] == late


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


def test_the_picture_is_coloured_by_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    save = Figure.savefig

    def saved(figure: Figure, *args: Any, **options: Any) -> None:
        drawn.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", saved)
    draw_timeline(disturbed(), tmp_path / "timeline.png")
    many = schedule(Sync(), Exponential(workers=60), updates=30)
    late = schedule(Async(), Exponential(workers=6), updates=300)
    draw_timeline(many, tmp_path / "many.png")
    draw_timelines({"together": many, "late": late}, tmp_path / "two.png")
    for name in ("timeline.png", "many.png", "two.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    above, below, bar = drawn[-1].axes
    assert (above.get_title("left"), below.get_title("left")) == ("together", "late")
    assert above.get_xlim() == below.get_xlim()
    assert bar.get_ylabel() == "delay (updates)"
    shown = [np.asarray(axes.collections[0].get_array()) for axes in (above, below)]
    assert set(shown[0]) == {0}
    last_s = below.get_xlim()[1]
    seen = pushes(late).latest[late.start_s < last_s]
    assert shown[1].tolist() == seen[seen >= 0].tolist()
    assert bar.get_ylim() == (0, seen.max())
