"""The timelines of a comparison: whose schedules are kept, and what the picture says of them."""

from pathlib import Path
from typing import Any

import pytest

import tardigrad as tg
from tardigrad.experiment import Spec, compare_entries
from tardigrad.report import Comparison, load_series
from tardigrad.report.compared_timelines import compared_panels
from tardigrad.report.page import runs_in
from tests.cli.command_line import SMALL, Cli

DATA: dict[str, Any] = {
    "updates": 40,
    "task": {"name": "quadratic", "dimension": 6, "noise": 0.1},
    "rule": {"name": "fasgd", "lr": 0.01},
    "cluster": {"name": "gamma", "workers": 6},
}
RULES = "sgd:lr=0.1,sgd:lr=0.05,fasgd"


def five(**more: Any) -> dict[str, Spec]:
    """Runs that differ in their waiting, and one more that does not."""
    policies: dict[str, dict[str, Any]] = {
        "async": {"name": "async"},
        "sync": {"name": "sync"},
        "backup": {"name": "backup", "backups": 1},
        "ssp": {"name": "stale_synchronous", "bound": 2},
        "soft": {"name": "soft_sync", "groups": 2},
    }
    made = {label: Spec.of({**DATA, "policy": said, **more}) for label, said in policies.items()}
    return {**made, "again": Spec.of({**DATA, **more})}


@pytest.mark.parametrize("jobs", [1, 2])
def test_rules_that_meet_one_schedule_have_one_timeline(tmp_path: Path, jobs: int) -> None:
    spec = Spec.of(DATA)
    found = tg.compare(spec, RULES, seeds=2, jobs=jobs, folder=tmp_path / "kept")
    made = spec.make_schedule()
    assert made is not None
    assert {label: one.digest for label, one in found.schedules.items()} == {
        "sgd:lr=0.1": made.digest
    }
    loaded = Comparison.load(tmp_path / "kept")
    assert loaded is not None
    assert loaded.schedules["sgd:lr=0.1"].digest == made.digest
    panels, lanes, told = compared_panels(found.series, found.schedules)
    assert list(panels) == ["sgd:lr=0.1, sgd:lr=0.05, fasgd (Async: 6 workers)"]
    assert (lanes, told) == (40, "seed 0, one of 2")
    shown = [one.schedule is not None for one in runs_in(tmp_path / "kept")]
    assert shown == [True, False, False]  # the page, too


def test_a_few_of_many_schedules_are_shown_and_the_picture_says_so(tmp_path: Path) -> None:
    found = compare_entries(five(), folder=tmp_path / "kept")
    assert list(found.schedules) == ["async", "sync", "backup", "ssp"]
    panels, lanes, told = compared_panels(found.series, found.schedules)
    assert next(iter(panels)) == "async, again (Async: 6 workers)"
    assert (lanes, told) == (8, "seed 0; 4 of 5 different schedules")
    picture = found.plot_timelines(tmp_path / "timelines.svg").read_text(encoding="utf-8")
    assert told in picture
    assert "StaleSynchronous: 6 workers" in picture


def test_runs_whose_links_look_at_tensors_have_their_own(tmp_path: Path) -> None:
    spec = Spec.of({**DATA, "link": {"name": "bandwidth_aware", "c_pull": 0.3}})
    found = tg.compare(spec, "fasgd,fasgd:lr=0.002", seeds=2)
    assert list(found.schedules) == ["fasgd", "fasgd:lr=0.002"]
    first, second = found.schedules.values()
    assert first.digest != second.digest
    made = found.save(tmp_path / "all")
    assert tmp_path / "all/timeline.png" in made


def test_some_can_be_named(tmp_path: Path) -> None:
    found = compare_entries(five(), folder=tmp_path / "kept", shown=("sync", "ssp"))
    assert list(found.schedules) == ["sync", "ssp"]
    assert len(list((tmp_path / "kept/schedules").iterdir())) == 2


def test_a_run_that_diverged_has_its_timeline() -> None:
    found = tg.compare(Spec.of({**DATA, "updates": 400}), "sgd:lr=1e6")
    assert found.series[0].diverged
    assert list(found.schedules) == ["sgd:lr=1e6"]


def test_a_comparison_without_schedules_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    tg.compare(Spec.of(DATA), RULES, folder=folder)
    lines = (folder / "comparison.jsonl").read_text(encoding="utf-8")
    old = lines.replace(', "schedule": "000-sgd_lr=0.1-seed=0.safetensors"', "")
    assert old != lines
    (folder / "comparison.jsonl").write_text(old, encoding="utf-8")
    found = Comparison.load(folder)
    assert found is not None
    with pytest.raises(ValueError, match="has no schedules"):
        found.plot_timelines(tmp_path / "timeline.png")
    assert len(load_series(folder)) == 3


def test_the_command_draws_them_and_report_does_again(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL, encoding="utf-8")
    said = cli("compare", "small.toml", "--rules", "sgd,staleness_aware")
    assert said.code == 0
    picture = Path("runs/small-compare/timeline.png")
    assert f"figure: {picture}" in said.out
    picture.unlink()
    assert f"figure: {picture}" in cli("report", "runs/small-compare").out
    assert picture.exists()
