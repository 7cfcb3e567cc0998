"""compare, list, data, report, demo, and how the program speaks."""

import json
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tardigrad
from tardigrad.bench import BENCHMARKS
from tardigrad.cli import cells as cells_shown
from tardigrad.cli import demo as demos
from tardigrad.cli.listed import LISTS
from tardigrad.cli.progress import Watcher
from tardigrad.clusters import CLUSTERS
from tardigrad.core.result_table import ResultTable
from tardigrad.engine import Tick
from tardigrad.experiment import Outcome, Spec, entries
from tardigrad.policies import POLICIES
from tardigrad.report import title_of
from tardigrad.rules import RULES
from tardigrad.scheduling import Schedule
from tardigrad.tasks import TASKS
from tardigrad.tasks import data as data_sets
from tests.cli.command_line import Cli


def outcomes(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "comparison.jsonl").read_text().splitlines()]


def test_compare_gives_every_rule_the_same_schedule_and_batches(cli: Cli) -> None:
    rules = "sgd,sgd:momentum=0.0,fasgd:lr=0.01"
    said = cli("compare", "small.toml", "--rules", rules, "--seeds", "2", "seed=5")
    assert said.code == 0
    found = outcomes("runs/small-compare")
    assert [(o["label"], o["seed"]) for o in found] == [
        (label, seed) for seed in (5, 6) for label in rules.split(",")
    ]
    first, same, other = (o["records"] for o in found[:3])
    drop = {"wall_s": 0}
    assert [r | drop for r in first] == [r | drop for r in same]
    assert first[-1] != other[-1]
    cli("run", "small.toml", "seed=5")  # and they are those of a run of the same spec
    lines = Path("runs/small/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) | drop for line in lines] == [r | drop for r in first]
    finals = [o["records"][-1]["validation_loss"] for o in found if o["label"] == "sgd"]
    assert f"{statistics.fmean(finals):.4g} ± {statistics.stdev(finals):.4g}" in said.out


def test_a_diverged_rule_is_told_as_diverged(cli: Cli) -> None:
    task = "task={name='quadratic',dimension=10}"
    said = cli("compare", "small.toml", task, "--rules", "sgd:lr=0.1,sgd:lr=50", "updates=300")
    assert said.code == 0
    assert "sgd:lr=50 (diverged)" in said.out
    assert "in a gradient of worker" in said.err
    assert [o["summary"]["status"] for o in outcomes("runs/small-compare")] == [
        "finished",
        "diverged",
    ]
    said = cli("compare", "small.toml", "--rules", "sgd")
    assert "already holds a comparison: look at it (tardigrad report" in said.err
    assert "--resume" not in said.err  # which it does not have
    words = ("run", "small.toml", "--out", "runs/small-compare")
    assert "--resume" not in cli(*words).err
    assert "holds a comparison, which cannot be resumed" in cli(*words, "--resume").err


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("", "rules is empty"),
        ("sgd,sgd", "names 'sgd' twice"),
        ("sgd,fasdg", "did you mean 'fasgd'?"),
        ("sgd:momentm=1", "did you mean 'momentum'?"),
        ("sgd:lr", "write key=value"),
        ("sgd:name=adam", "'sgd:name=adam' says two names of a rule"),
        ("sgd:lr=0.1:lr=0.2", "'sgd:lr=0.1:lr=0.2' says lr twice: keep one"),
    ],
)
def test_rules_to_compare_are_checked_first(cli: Cli, rules: str, message: str) -> None:
    said = cli("compare", "small.toml", "--rules", rules)
    assert said.code == 2
    assert message in said.err
    assert not Path("runs").exists()


def test_lists_and_tables_stand_inside_a_compared_rule(cli: Cli) -> None:
    spec = Spec.load("small.toml")
    one, two = entries(spec, "adam:betas=[0.8, 0.9],sgd:lr={rate='linear',lr=1,over=9}")
    assert one.spec.rule["betas"] == [0.8, 0.9]
    assert two.spec.rule["lr"] == {"rate": "linear", "lr": 1, "over": 9}


def test_a_stopped_comparison_keeps_what_had_ended(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = cells_shown.tell_outcome

    def stop_after_two(outcome: Outcome, many: bool) -> None:
        tell(outcome, many)
        if outcome.label == "fasgd":
            raise KeyboardInterrupt

    monkeypatch.setattr(cells_shown, "tell_outcome", stop_after_two)
    said = cli("compare", "small.toml", "--rules", "sgd,fasgd,adam", "updates=16")
    assert said.code == 130
    assert "runs/small-compare holds the 2 runs that had ended" in said.err
    assert [o["label"] for o in outcomes("runs/small-compare")] == ["sgd", "fasgd"]
    assert cli("report", "runs/small-compare").code == 0


@pytest.mark.parametrize("what", LISTS)
def test_every_name_is_listed_with_a_line(cli: Cli, what: str) -> None:
    said = cli("list", what)
    names: dict[str, Iterable[str]] = {
        "rules": RULES,
        "policies": POLICIES,
        "clusters": CLUSTERS,
        "tasks": TASKS,
    }
    lines = [line for line in said.out.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in lines] == list(names.get(what, LISTS[what].registry.makers))
    assert all(len(line.split()) > 1 for line in lines), lines


def test_listing_something_else_names_the_nearest(cli: Cli) -> None:
    said = cli("list", "rule")
    assert said.code == 2
    assert "did you mean 'rules'?" in said.err


COMPARED = {"report": (), "compare": ("--rules", "sgd"), "sweep": ("rule.lr=[0.1,0.2]",)}


def test_report_draws_again_from_the_folder(cli: Cli) -> None:
    cli("run", "small.toml")
    for figure in Path("runs/small").glob("*.png"):
        figure.unlink()
    said = cli("report", "runs/small", "--target", "100")
    assert said.code == 0
    assert "to 100 (s)" in said.out
    drawn = {figure.stem for figure in Path("runs/small").glob("*.png")}
    assert drawn == {"loss_by_update", "loss_by_time", "delays", "timeline"}
    assert "holds no run" in cli("report", "runs").err
    for words in (("report", "runs/small"), ("compare", "small.toml"), ("sweep", "small.toml")):
        for target in ("nan", "inf"):
            refused = cli(*words, *COMPARED[words[0]], "--target", target)
            assert refused.code == 2
            assert f"target must be a finite number, got {target}" in refused.err


def test_data_lists_and_names_what_it_does_not_know(cli: Cli) -> None:
    assert "cifar10" in cli("data", "list").out
    said = cli("data", "fetch", "minst")
    assert said.code == 2
    assert "mnist" in said.err


def test_help_reads_without_arguments_and_with(cli: Cli) -> None:
    said = cli()
    assert said.code == 0
    for word in ("demo", "run", "compare", "plan", "list", "data", "report"):
        assert f" {word} " in said.out
        assert cli(word, "--help").code == 0
    assert cli("--version").out.strip() == tardigrad.__version__
    assert cli("rn").code == 2


def test_the_demo_compares_eight_ways_on_the_same_draws(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wiring, on a task that needs no data; the stress test runs it whole."""
    monkeypatch.setattr(demos, "TASK", {"name": "logistic_regression", "train_size": 100})
    said = cli("demo", "--gradients", "64")
    assert said.code == 0
    noticed = said.out.partition("what to notice:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.partition(":")[0] for line in noticed[:2]] == ["- synchronous SGD", "- ASGD"]
    assert len(noticed) == 3
    assert Path("runs/demo/timeline.png").exists()
    page = Path("runs/demo/report.html").read_text()
    assert "tardigrad demo --gradients 64" in page
    assert page.count('"timeline":{') == 2
    assert cli("demo", "--gradients", "64").code == 0
    assert cli("report", "--html", "runs/demo").code == 0  # which has the timelines again
    assert Path("runs/demo/report.html").read_text().count('"timeline":{') == 2
    assert {path.name for path in Path("runs").iterdir()} == {"demo", "demo-2"}
    found = outcomes("runs/demo")
    labels = ["sequential SGD", "synchronous SGD", "ASGD", "SASGD", "FASGD", "DC-ASGD"]
    assert [o["label"] for o in found] == [*labels, "Gap-Aware", "DANA-GA"]
    assert all(o["records"][-1]["samples"] == 64 * 16 for o in found)
    assert title_of(Path("runs/demo")) == "logistic regression, 16 workers (gamma), async"
    spec = demos.demo_spec(64)
    alone, together, asynchronous, *_ = (
        made
        for entry in demos.demo_entries(spec, 64)
        if (made := entry.spec.make_schedule()) is not None
    )
    times = steps(asynchronous)
    assert steps(alone)[0][:4] == pytest.approx(times[0][:4], rel=1e-12)
    for worker in range(16):
        shared = min(len(times[worker]), len(steps(together)[worker]))
        assert shared >= 3
        assert steps(together)[worker][:shared] == pytest.approx(times[worker][:shared], rel=1e-12)
    assert "gradients must be at least 16" in cli("demo", "--gradients", "3").err


def steps(schedule: Schedule) -> list[list[float]]:
    """Per worker, how long its finished steps took."""
    took = schedule.end_s - schedule.start_s
    return [
        [float(t) for t in took[schedule.worker == w] if np.isfinite(t)]
        for w in range(schedule.workers)
    ]


@pytest.mark.stress
def test_the_demo_shows_fasgd_below_sasgd(cli: Cli) -> None:
    assert cli("demo").code == 0
    final = {o["label"]: o["records"][-1]["validation_loss"] for o in outcomes("runs/demo")}
    assert final["FASGD"] < final["SASGD"]


def test_the_bar_waits_and_then_tells_rate_loss_and_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from tardigrad.cli import progress

    console = Console(force_terminal=True, width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    monkeypatch.setattr(progress, "err", console)
    clock = iter([-9.0, 0.0, 1.0, 1.9, 2.5, 4.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    watcher = Watcher("a run").begin(Schedule.from_order([0, 1, 0, 1], 2))
    watcher(Tick(1, 4, 0.5))
    watcher(Tick(2, 4, 0.5))
    assert console.export_text() == ""
    watcher(Tick(3, 4, 0.25))
    watcher(Tick(4, 4, 0.125))
    watcher.close()
    shown = console.export_text().split()
    assert shown[:2] == ["a", "run"]
    assert shown[-7:] == ["1", "updates/s", "loss", "0.125", "mean", "delay", "0.8"]
    console.file.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bench schedule --device cpu", "the benchmark 'schedule' has no --device: leave it out"),
        ("reproduce psp-times --device cuda", "psp-times runs on the CPU alone"),
        (
            "reproduce psp-times --cells N=1",
            "no cell of psp-times is named 'N=1': they are such as",
        ),
        ("run small.toml --impose", "--address and --impose are for runs on Ray: add --on ray"),
    ],
)
def test_an_option_that_means_nothing_here_is_refused(cli: Cli, words: str, told: str) -> None:
    said = cli(*words.split())
    assert said.code == 2
    assert told in said.err


def test_bench_prints_json_on_request(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ResultTable("a title", ("what", "how much"), (("this", 1.5), ("that", None)))
    monkeypatch.setitem(BENCHMARKS, "schedule", lambda: found)
    said = cli("bench", "schedule", "--json")
    assert json.loads(said.out)["rows"] == [
        {"what": "this", "how much": 1.5},
        {"what": "that", "how much": None},
    ]


def test_rates_are_listed_under_their_name_of_0_1_with_a_warning(cli: Cli) -> None:
    said = cli("list", "schedules")
    assert said.out == cli("list", "rates").out
    assert "warning: learning rates are listed by tardigrad list rates" in said.err


def test_data_fetch_tells_where_it_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, force: bool, progress: Callable[[str], None]) -> Path:
        progress(f"trying {name}, {force}")
        return Path("here/mnist.bin")

    monkeypatch.setattr(data_sets, "fetch", fetch)
    said = cli("data", "fetch", "mnist", "--force")
    assert "trying mnist, True" in said.err
    assert "mnist is in here/mnist.bin" in said.out
