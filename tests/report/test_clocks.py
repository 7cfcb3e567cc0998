"""What tables and figures call a run's time, and what stands above them."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import tardigrad as tg
from tardigrad.recording.folder import RunFolder
from tardigrad.report import draw, draw_timeline, draw_timelines, results_table, title_of
from tardigrad.report.clocks import CLOCKS, MIXED, clock_of
from tardigrad.report.perfetto import trace_events
from tardigrad.report.series import Series, load_series
from tardigrad.scheduling import Schedule

SIMULATED = tg.schedule(tg.Async(), tg.Gamma(workers=2, mean_s=0.001), updates=30)
ORDERED = Schedule.from_order([0, 1, 0, 1], 2)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """The figures by name, as they are saved."""
    kept: dict[str, Figure] = {}
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **_: kept.update({path.name: self}))
    return kept


def recorded() -> Schedule:
    """As a run on Ray leaves it."""
    made = tg.schedule(tg.Async(), tg.Gamma(workers=2, mean_s=0.001), updates=30)
    made.about["cluster"] = {"name": "ray"}
    return made


def one(clock: str, end_s: float = 0.2) -> Series:
    facts = {"updates": 20, "time_s": end_s, "clock": clock, "mean_delay": 1.0, "dropped": 0}
    records = [
        {"update": 5 * i, "time_s": end_s * i / 4, "validation_loss": 1.0 / (i + 1)}
        for i in range(5)
    ]
    return Series("sgd", [records], [{"status": "finished", "delay_counts": [1], **facts}])


def test_a_schedule_knows_its_clock() -> None:
    assert [s.clock for s in (SIMULATED, recorded(), ORDERED)] == ["virtual", "measured", "events"]


def test_folders_of_version_0_1_say_it_in_other_words() -> None:
    assert clock_of([{"clockless": False}]) == CLOCKS["virtual"]
    assert clock_of([{"clockless": True}, {"clock": "events"}]) == CLOCKS["events"]
    assert clock_of([{"clockless": False, "on": "ray"}]) == CLOCKS["measured"]
    assert clock_of([{"clock": "events"}, {"clock": "virtual"}]) == MIXED


@pytest.mark.parametrize(
    ("clock", "title", "label"),
    [
        ("virtual", "validation set, virtual time", "virtual time (s)"),
        ("measured", "validation set, measured time", "measured time (s)"),
        ("events", "validation set, time", "time (events)"),
    ],
)
def test_only_simulated_time_is_called_virtual(
    clock: str, title: str, label: str, tmp_path: Path, drawn: dict[str, Figure]
) -> None:
    assert results_table([one(clock)]).title == title
    draw([one(clock)], tmp_path, "t")
    (axes,) = drawn["loss_by_time.png"].axes
    assert axes.get_xlabel() == label
    made = {"virtual": SIMULATED, "measured": recorded(), "events": ORDERED}[clock]
    draw_timeline(made, tmp_path / "timeline.png")
    assert drawn["timeline.png"].axes[0].get_xlabel() == label
    said = trace_events(made)["otherData"]["clock"]
    assert said == ("events" if clock == "events" else f"{clock} seconds")


def test_a_run_ends_where_it_ends_although_another_goes_on(
    tmp_path: Path, drawn: dict[str, Figure]
) -> None:
    """What was on its way at its end is unfinished there, and not until the other's end."""
    short, long = (tg.schedule(tg.Async(), tg.Gamma(workers=3), updates=n) for n in (4, 30))
    draw_timelines({"short": short, "long": long}, tmp_path / "both.png")
    first, second, *_ = drawn["both.png"].axes
    for axes, schedule in ((first, short), (second, long)):
        boxes = [path.get_extents() for each in axes.collections for path in each.get_paths()]
        assert max(box.x1 for box in boxes) == pytest.approx(schedule.end_time)
    assert first.get_xlim() == second.get_xlim()


@pytest.mark.parametrize("end_s", [0.0123, 0.2, 7.0, 1234.5, 1e6])
def test_ticks_can_be_told_apart(end_s: float, tmp_path: Path, drawn: dict[str, Figure]) -> None:
    draw([one("measured", end_s)], tmp_path, "t")
    (axes,) = drawn["loss_by_time.png"].axes
    form = axes.xaxis.get_major_formatter()
    texts = [form(value, n) for n, value in enumerate(axes.get_xticks())]
    assert len(texts) > 3
    assert [float(text.replace(",", "")) for text in texts] == pytest.approx(axes.get_xticks())
    assert all(len(text) < 10 for text in texts)


def test_a_short_runs_time_is_not_0() -> None:
    (row,) = results_table([one("measured")], 0.4).data()["rows"]
    assert row["time (s)"] == "0.2"
    assert row["to 0.4 (s)"] == "0.1"


SPEC: dict[str, Any] = {
    "gamma": '{name = "gamma", workers = 4}',
    "trace": '{name = "trace", path = "elsewhere.csv"}',
}


@pytest.mark.parametrize(
    ("cluster", "facts", "title"),
    [
        ("gamma", {}, "my task, 4 workers (gamma), sync"),
        ("trace", {}, "my task, 3 workers (trace), sync"),
        ("gamma", {"on": "ray"}, "my task, 4 workers (Ray), sync"),
        ("gamma", {"on": "ray", "imposed": False}, "my task, 4 workers (Ray), sync"),
        (
            "gamma",
            {"on": "ray", "imposed": True},
            "my task, 4 workers (Ray, keeping gamma times), sync",
        ),
    ],
)
def test_the_title_says_what_gave_workers_their_times(
    cluster: str, facts: dict[str, Any], title: str, tmp_path: Path
) -> None:
    spec = f'updates = 1\nrule = "sgd"\ncluster = {SPEC[cluster]}\npolicy = {{name = "sync"}}\n'
    spec += '[task]\nname = "my_task"\n'
    folder = RunFolder.create(tmp_path / "run", spec, None)
    folder.write_summary({"status": "finished", "workers": 3, **facts})
    assert title_of(folder.path) == title
    compared = RunFolder.create(tmp_path / "compared", spec, None)
    compared.add_outcome({"label": "a", "summary": {"workers": 3}})
    workers = 3 if cluster == "trace" else 4
    assert title_of(compared.path) == f"my task, {workers} workers ({cluster}), sync"


@pytest.mark.parametrize("status", ["stopped", "diverged"])
def test_a_run_on_ray_that_ended_early_has_no_report(status: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "rule = {name = 'sgd'}\n", None)
    folder.write_summary({"status": status, "why": "so"})
    with pytest.raises(ValueError, match=rf"{status}, and no results: finish it \(--resume\)"):
        load_series(folder.path)
    assert json.loads((folder.path / "summary.json").read_text())["status"] == status
