"""sweep: every point equals the single run of it, whoever executes it."""

import csv
import json
import multiprocessing
import os
import signal
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tardigrad.experiment import Spec, execute_cells, points, read_toml, run
from tardigrad.experiment.sweep import cells_of
from tardigrad.report import Sweep
from tardigrad.report.figures import ceiling_of
from tests.cli.command_line import Cli, started

BOWL = """
updates = 48
[task]
name = "quadratic"
dimension = 12
noise = 0.1
[rule]
name = "sgd"
lr = 0.1
[cluster]
name = "gamma"
workers = 4
"""


@pytest.fixture
def bowl(tmp_path: Path) -> Path:
    path = tmp_path / "bowl.toml"
    path.write_text(BOWL)
    return path


def kept(folder: str) -> list[dict[str, Any]]:
    lines = Path(folder, "comparison.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def rows(folder: str) -> list[dict[str, str]]:
    with Path(folder, "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def numbers(records: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in record.items() if k != "wall_s"} for record in records]


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "policy={name='malenia',batch=3}", "--rules", "sgd,dana:lr=0.01"),
        ("compare", "policy={name='malenia',batch=3}", "--rules", "sgd,dana:lr=0.01", "--jobs=2"),
        ("sweep", "shards=[1,2]", "rule={name='muon',lr=0.01}"),
        ("sweep", "rule.rate_scale=[{weight=2},{wieght=2}]", "seed=[0,1]", "log=tensorboard"),
        ("sweep", "chunk=[8,1000000000]"),
    ],
)
def test_every_cell_is_checked_before_the_first_one_runs(cli: Cli, words: tuple[str, ...]) -> None:
    command, *more = words
    said = cli(command, "small.toml", *more)
    assert said.code == 2
    assert said.err.splitlines()[-1].startswith("error: at ")
    assert "1 of " not in said.err
    assert {path.name for path in Path().rglob("*")} <= {"small.toml", "runs"}


def test_points_in_processes_equal_single_runs_to_the_bit(cli: Cli) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        said = cli("sweep", "small.toml", "rule.lr=[0.02,0.1]", "seed=[3,4]", "--jobs=2")
        assert said.code == 0, said.err
        assert "4 runs, 2 at a time, each in a process of its own" in said.err
        found = kept("runs/small-sweep")
        assert len(found) == 4
        for outcome in found:
            lr, seed = outcome["point"]["rule.lr"], outcome["point"]["seed"]
            spec = Spec.load("small.toml", [f"rule.lr={lr}", f"seed={seed}"])
            single = run(spec, Path(f"runs/{lr}-{seed}"))
            assert numbers(outcome["records"]) == numbers(single.history.records)
    finally:
        torch.set_num_threads(threads)
    assert len({outcome["records"][-1]["validation_loss"] for outcome in found}) == 4


def test_the_table_the_file_and_the_figure_tell_the_same(cli: Cli) -> None:
    said = cli("sweep", "small.toml", "rule.lr=[0.001,0.1]", "rule.name=[sgd,adam]", "--jobs=1")
    assert said.code == 0, said.err
    outcomes, table = kept("runs/small-sweep"), rows("runs/small-sweep")
    losses = [float(row["final_validation_loss"]) for row in table]
    assert losses == sorted(losses)
    for row in table:
        (one,) = [
            o
            for o in outcomes
            if o["point"] == {"rule.lr": float(row["rule.lr"]), "rule.name": row["rule.name"]}
        ]
        column = [record["validation_loss"] for record in one["records"]]
        accuracy = [record["validation_accuracy"] for record in one["records"]]
        assert float(row["final_validation_loss"]) == column[-1]
        assert float(row["best_validation_loss"]) == min(column)
        assert float(row["best_validation_accuracy"]) == max(accuracy)
    shown = [
        line.split()[:3] for line in said.out.splitlines() if " sgd " in line or "adam" in line
    ]
    assert shown == [
        [row["rule.lr"], row["rule.name"], f"{float(row['final_validation_loss']):.4g}"]
        for row in table
    ]
    with Image.open("runs/small-sweep/sweep.png") as picture:
        assert picture.width > picture.height
    assert cli("report", "runs/small-sweep").out.startswith(said.out.partition("everything")[0])


def test_points_that_may_share_a_schedule_do(bowl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[int] = Counter()
    make = Spec.make_schedule

    def counting(spec: Spec) -> Any:
        made[spec.seed] += 1
        return make(spec)

    monkeypatch.setattr(Spec, "make_schedule", counting)
    axes = ["rule.lr=[0.1,0.2,0.3]", "rule.name=[sgd,staleness_aware]", "seed=[0,7]"]
    found = list(execute_cells(cells_of(points(read_toml(bowl), axes))))
    assert made == {0: 1, 7: 1}
    assert len(found) == 12
    made.clear()
    list(execute_cells(cells_of(points(read_toml(bowl), ["cluster.workers=[1,2,3]"]))))
    assert made == {0: 3}


def test_threads_are_as_before_after_a_sweep_in_this_process(bowl: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        running = execute_cells(cells_of(points(read_toml(bowl), ["seed=[0,1]"])))
        next(running)
        assert torch.get_num_threads() == 1
        running.close()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_diverged_point_is_told_as_such_and_stands_last(cli: Cli, bowl: Path) -> None:
    said = cli("sweep", "bowl.toml", "rule.lr=[1e30,0.1]", "--jobs", "1")
    assert said.code == 0, said.err
    good, bad = rows("runs/bowl-sweep")
    assert (good["status"], good["rule.lr"]) == ("finished", "0.1")
    assert (bad["status"], bad["rule.lr"]) == ("diverged", "1e+30")
    assert bad["final_validation_loss"] == bad["best_validation_loss"] == ""
    assert f"diverged at update {bad['diverged_at']}" in said.out
    assert 0 < int(bad["diverged_at"]) < 48


def test_a_sweep_where_everything_diverged_still_reports(cli: Cli, bowl: Path) -> None:
    said = cli("sweep", "bowl.toml", "rule.lr=[1e30,2e30]", "--jobs", "1")
    assert said.code == 0, said.err
    assert said.out.count("diverged at update") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rule.momentun=[0.1,0.2]"], "no key 'momentun'; did you mean 'momentum'?"),
        (["ruel.lr=[0.1]"], "no key 'ruel'; did you mean 'rule'?"),
        (["rule.name=[sgd,fasgt]"], "did you mean 'fasgd'?"),
        (["rule.lr=[]"], "rule.lr has an empty list"),
        (["rule.lr=0.1,0.2"], "'rule.lr=0.1,0.2' is not a list of values: write rule.lr=[…]"),
        (["rule.lr=[0.1,0.2"], "is not a list of values"),
        (["rule.lr="], "is not a list of values"),
        (["rule.lr=0.1"], "there is nothing to sweep"),
        (["rule.lr"], "is not a list of values"),
        (["rule.lr=[0.1,0.1]"], "rule.lr has the value 0.1 twice"),
        (["rule.lr=[0.1]", "rule.lr=[0.2]"], "rule.lr is swept twice"),
        (["rule.lr=[0.1,-1]"], "[rule] lr must"),
        (["rule.lr=[0.1,fast]"], "rule.lr must be"),
        (["rule.lr=[0.1,0.2]", 'rule=[{name="sgd",lr=1}]'], "are the same experiment"),
        (["seed=[0,1]", "evaluate_every=0"], "a sweep compares evaluations"),
        (["seed=[0,1]", "--jobs=0"], "jobs must be a whole number of at least 1"),
    ],
)
def test_bad_axes_are_told_before_anything_is_written(
    cli: Cli, words: list[str], message: str
) -> None:
    said = cli("sweep", "small.toml", *words)
    assert said.code == 2
    assert message in " ".join(said.err.split())
    assert not Path("runs").exists()


def test_an_error_in_one_point_names_it_and_leaves_no_process(cli: Cli, bowl: Path) -> None:
    lost = 'task=[{name="quadratic"},{name="quadratic",condition=0.5}]'
    said = cli("sweep", "bowl.toml", lost, "--jobs", "2")
    assert said.code == 2
    assert '"condition": 0.5' in said.err
    assert "condition must be at least 1" in said.err
    assert multiprocessing.active_children() == []


def test_a_folder_in_use_is_refused(cli: Cli) -> None:
    Path("runs/small-sweep").mkdir(parents=True)
    Path("runs/small-sweep/notes.txt").write_text("mine")
    assert "write elsewhere" in cli("sweep", "small.toml", "seed=[0,1]").err


def alive(group: int) -> list[str]:
    """The processes of a group that have not ended, though nobody may have asked how."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, in_group = file.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has just ended
            continue
        if int(in_group) == group and state != "Z":
            found.append(file.parent.name)
    return found


def test_ctrl_c_keeps_what_had_ended_and_ends_every_process(bowl: Path) -> None:
    words = ["sweep", "bowl.toml", "updates=[1,2,300000]", "engine=exact", "--jobs", "2"]
    process = started(bowl.parent, *words, start_new_session=True)
    try:
        outcomes = bowl.parent / "runs/bowl-sweep/comparison.jsonl"
        deadline = time.monotonic() + 60
        while not outcomes.exists() or outcomes.read_text().count("\n") < 2:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        assert len(alive(process.pid)) > 2
        os.kill(process.pid, signal.SIGINT)  # the parent alone: it must see to its processes
        _, said = process.communicate(timeout=90)
        assert process.returncode == 130, said
        assert "holds the 2 runs that had ended" in said
        deadline = time.monotonic() + 10
        while alive(process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()


def test_a_point_that_runs_away_does_not_flatten_the_figure(cli: Cli, bowl: Path) -> None:
    assert cli("sweep", "bowl.toml", "rule.lr=[0.1,0.2,9.0]", "--jobs", "1").code == 0
    loaded = Sweep.load(Path("runs/bowl-sweep"))
    assert loaded is not None
    loss = "validation_loss"
    first = [one.runs[0][0][loss] for one in loaded.series]
    assert [one.diverged for one in loaded.series] == [0, 0, 0]
    assert loaded.series[-1].final(loss)[0] > 1e6 * max(first)
    assert ceiling_of(loaded.series, loss) == 10 * max(first)
    for axes in loaded.figure().axes[:2]:
        assert axes.get_ylim()[1] == pytest.approx(10 * max(first))


def test_policies_are_compared_with_the_work_and_the_time_they_took(cli: Cli) -> None:
    words = ["policy=[async,sync]", "rule.lr=0.1", "--jobs", "1", "--target", "0.6"]
    said = cli("sweep", "small.toml", *words)
    assert said.code == 0, said.err
    head, _, *lines = said.out.splitlines()[1:5]
    assert head.split()[-7:] == ["to", "0.6", "(s)", "updates", "gradients", "time", "(s)"]
    found = {line.split()[0]: line.split() for line in lines}
    for outcome in kept("runs/small-sweep"):
        cells, facts = found[outcome["point"]["policy"]], outcome["summary"]
        sizes = {"async": 60, "sync": 240}
        assert cells[-3:-1] == ["60", str(sizes[outcome["point"]["policy"]])]
        assert float(cells[-1].replace(",", "")) == pytest.approx(facts["time_s"], rel=1e-3)
    slow, fast = (float(found[p][-1].replace(",", "")) for p in ("sync", "async"))
    assert slow > 3 * fast
    assert said.out == cli("report", "runs/small-sweep", "--target", "0.6").out + (
        "everything is in runs/small-sweep\n"
    )


def test_a_sweeps_report_tells_when_the_target_was_reached(cli: Cli) -> None:
    cli("sweep", "small.toml", "rule.lr=[0.0001,0.1]", "--jobs", "1")
    said = cli("report", "runs/small-sweep", "--target", "0.6")
    assert "to 0.6 (s)" in said.out
    quick, slow = rows("runs/small-sweep")
    outcome = next(o for o in kept("runs/small-sweep") if o["point"]["rule.lr"] == 0.1)
    reached = [r["time_s"] for r in outcome["records"] if r["validation_loss"] <= 0.6]
    assert float(quick["time_s_to_0.6"]) == reached[0] > 0
    assert slow["time_s_to_0.6"] == ""
    assert f" {reached[0]:.4g} " in said.out or f" {reached[0]:,.0f} " in said.out


def test_curves_stand_over_updates_and_over_time_and_seeds_are_one(cli: Cli) -> None:
    said = cli("sweep", "small.toml", "policy=[async,sync]", "--seeds", "2", "--jobs", "1")
    assert said.code == 0, said.err
    found = Sweep.load("runs/small-sweep")
    assert found is not None
    assert [len(one.runs) for one in found.series] == [2, 2]
    figure = found.figure()
    updates, times = figure.axes
    assert (updates.get_xlabel(), times.get_xlabel()) == ("updates", "virtual time (s)")
    assert len(updates.lines) == len(updates.collections) == 2
    assert figure.get_supxlabel() == "line: mean over 2 seeds; band: ± 1 standard deviation"
    finals = found.series[0].final("validation_loss")
    mean, deviation = statistics.fmean(finals), statistics.stdev(finals)
    assert f"{mean:.4g} ± {deviation:.4g}" in said.out
    assert "mean ± standard deviation over 2 seeds" in said.out
    assert len(rows("runs/small-sweep")) == 4


def test_two_axes_are_told_apart_by_colour_and_line(cli: Cli) -> None:
    cli("sweep", "small.toml", "rule.lr=[0.1,0.2]", "rule.name=[sgd,adam]", "--jobs", "1")
    found = Sweep.load("runs/small-sweep")
    assert found is not None
    figure = found.figure()
    looks = {(line.get_color(), str(line.get_linestyle())) for line in figure.axes[0].lines}
    assert len(looks) == 4
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["0.1", "0.2", "rule.name=adam", "rule.name=sgd"]
