"""plan, reproduce, bench and timelines, as a user meets them."""

import json
import os
import re
from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad.bench.schedule import bench_schedule, check_same
from tardigrad.clusters import Absence, Gamma, TimedCluster
from tardigrad.experiment import Spec
from tardigrad.planning.studies.backup_workers import backup_workers
from tardigrad.planning.studies.gap_aware_speedup import gap_aware_speedup
from tardigrad.planning.studies.layer_staleness import layer_staleness
from tardigrad.planning.studies.psp_times import psp_times
from tardigrad.policies import Async, Sync
from tardigrad.scheduling import schedule
from tests.cli.command_line import Cli


def test_plan_writes_an_experiment_that_runs(cli: Cli) -> None:
    said = cli("plan", "small.toml", "--gradients", "2000")
    assert (said.code, said.err) == (0, "")
    assert "recommended: " in said.out
    for policy in ("Async", "Sync", "Backup(", "Partial(", "Deadline(", "SoftSync("):
        assert policy in said.out
    assert Path("plans/small/plan.png").read_bytes().startswith(b"\x89PNG")
    written = Path("plans/small/recommended.toml")
    spec = Spec.load(written)
    assert spec.task == Spec.load("small.toml").task
    assert spec.make_policy() != Spec.load("small.toml").make_policy()
    assert cli("run", str(written), "updates=5").code == 0


def test_plan_takes_measured_times(cli: Cli) -> None:
    lines = [f"{w},{1 + 0.1 * ((7 * w + i) % 5)}" for w in range(4) for i in range(9)]
    Path("times.csv").write_text("\n".join(["worker,step_s", *lines, "3,9.5"]))
    said = cli("plan", "times.csv", "--workers", "8", "--gradients", "800")
    assert said.code == 0
    spec = Spec.load("plans/times/recommended.toml")
    trace = str(Path("times.csv").resolve())
    assert spec.cluster == {"name": "trace", "path": trace, "workers": 8}


@pytest.mark.parametrize("where", ["plans/times", ".", "elsewhere"])
def test_what_is_recommended_runs_from_anywhere(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    Path("times.csv").write_text("worker,step_s\n0,1.0\n1,1.1\n2,1.3\n3,3.5\n")
    small = Path("small.toml").read_text().split("[cluster]")[0]
    trace = '[cluster]\nname = "trace"\npath = "times.csv"\n'
    Path("times.toml").write_text("seed = 3\nshards = 2\n" + small + trace + NETWORK)
    assert cli("plan", "times.toml", "--gradients", "400").code == 0
    written = Path("plans/times/recommended.toml").resolve()
    Path(where).mkdir(exist_ok=True)
    monkeypatch.chdir(where)
    said = cli("run", os.path.relpath(written), "updates=5")
    assert said.code == 0, said.err
    kept = Spec.load(written)
    cluster = kept.make_cluster()
    assert isinstance(cluster, TimedCluster)
    assert (kept.seed, kept.shards, cluster.absences) == (3, 2, (Absence(3, 50.0),))


NETWORK = """
absences = [{worker = 3, leaves_s = 50.0}]
[cluster.network]
latency_s = 0.1
slow_shards = [{shard = 1, factor = 2.0}]
"""


def test_plan_tells_the_same_everywhere(cli: Cli) -> None:
    """What is printed: the recommendation's ratio is that of the two rows of the table."""
    words = ("cluster.workers=8", "shards=4", "cluster.network={latency_s=9.0}")
    said = cli("plan", "small.toml", *words, "--gradients", "2000").out
    rows = re.findall(r"^\W*(Async|Sync)\s+([\d.]+)", said, re.MULTILINE)
    per_s = {policy: float(told) for policy, told in rows}
    (ratio,) = re.findall(r"apply only ([\d.]+) times", " ".join(said.split()))
    assert "no backups pay off" in said
    assert float(ratio) == pytest.approx(per_s["Async"] / per_s["Sync"], abs=0.006)


def test_plan_counts_present_workers_alone(cli: Cli) -> None:
    """Half of them are gone from the start: an update has 4 gradients, and 2,500 are needed."""
    gone = ", ".join(f"{{worker={w}, leaves_s=0.0}}" for w in range(4))
    words = ("cluster.name=constant", "cluster.workers=8", f"cluster.absences=[{gone}]")
    small = Path("small.toml").read_text().replace("updates = 60", "")
    Path("small.toml").write_text(small)
    assert cli("plan", "small.toml", *words, "--gradients", "400").code == 0
    spec = Spec.load("plans/small/recommended.toml")
    assert (spec.policy["name"], spec.updates) == ("sync", 2500)


LOG = "Host;Step time (ms)\n" + "".join(
    f"node-{w};{1000 + 100 * ((3 * w + i) % 7) + 900 * (w == 3 and i % 4 == 0)}\n"
    for w in range(4)
    for i in range(12)
)
TRAINED = ("plan", "log.csv", "updates=150", "--spec", "small.toml", "--target", "loss=0.6")


def test_plan_answers_how_long_and_what_it_costs(cli: Cli) -> None:
    """A foreign log, a task and a target: a table, a figure, and an experiment that stops there."""
    Path("log.csv").write_text(LOG)
    words = (*TRAINED, "--price", "2.5", "--seeds", "2", "--without-stragglers", "--mtbf", "1h")
    said = cli(*words)
    assert said.code == 0, said.err
    for guess in ("columns separated by semicolons", "is in milliseconds", "node-0 is worker 0"):
        assert f"log.csv: {guess}" in said.out or guess in said.out
    assert "Time to loss=0.6 on 4 workers" in said.out
    for column in ("seconds", "± s", "cost", "mean delay", "MB", "seeds"):
        assert column in said.out
    assert "goodput" in said.out
    assert "without stragglers" in said.out
    assert "not progress" not in said.out
    found = json.loads(Path("plans/log/plan.json").read_text())
    winner = found["answer"]["winner"]
    assert len(found["answer"]["candidates"]) <= 40
    assert winner["cost"] == pytest.approx(4 * winner["seconds"] / 3600 * 2.5)
    reached = [c["seconds"] for c in found["answer"]["candidates"] if c["seconds"]]
    assert winner["seconds"] <= 1.3 * min(reached)
    written = Path("plans/log/recommended.toml")
    spec = Spec.load(written)
    assert spec.stop == {"loss": 0.6}
    assert spec.rule == winner["rule"]
    assert cli("run", str(written)).code == 0
    ended = json.loads(Path("runs/recommended/summary.json").read_text())
    assert ended["ended_by"] == "loss"
    assert ended["time_s"] == pytest.approx(winner["seconds_by_seed"][0], rel=0.2)
    kept = Path("plans/log/curves.jsonl").read_text()
    again = cli(*words, "--json")
    assert json.loads(again.out)["answer"] == found["answer"]
    assert Path("plans/log/curves.jsonl").read_text() == kept  # nothing was trained again


def test_a_range_of_workers_is_priced(cli: Cli) -> None:
    Path("log.csv").write_text(LOG)
    said = cli(*TRAINED, "--workers", "4:8", "--seeds", "1", "--json")
    assert said.code == 0, said.err
    answer = json.loads(said.out)["answer"]
    assert {one["workers"] for one in answer["candidates"]} == {4, 8}
    cost = {one["workers"]: one["cost"] for one in answer["candidates"] if one["cost"]}
    assert set(cost) == {4, 8}
    assert Path("plans/log/plan.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_task_gradients_are_not_called_progress(cli: Cli) -> None:
    said = cli("plan", "bytedance_se", "--gradients", "2000", "--without-stragglers")
    assert said.code == 0, said.err
    assert "these are gradients, not progress" in said.out
    assert "If nobody were slower than the others" in said.out
    spec = Spec.load("plans/bytedance_se/recommended.toml")
    assert spec.cluster == {"name": "trace", "path": "bytedance_se", "workers": 32}


def test_python_plans_as_the_command_does(cli: Cli, tmp_path: Path) -> None:
    Path("log.csv").write_text(LOG)
    found = tg.plan("log.csv", gradients=400, changes=["cluster.order=recorded"])
    assert isinstance(found, tg.Planned)
    assert found.spec["cluster"]["order"] == "recorded"
    assert "milliseconds" in " ".join(found.guesses)
    assert found.why in str(found)
    same = tg.plan(tg.Gamma(workers=4), gradients=400, failures=tg.Failures(1e4))
    assert same.spec["cluster"] == {"name": "gamma", "workers": 4}
    assert "goodput" in str(same)
    found.save(tmp_path / "kept")
    assert Spec.load(tmp_path / "kept" / "recommended.toml").updates > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.toml",), "there is no file nowhere.toml"),
        (("bad.csv",), "bad.csv, line 3: step_s must be a number, got 'soon'"),
        (("small.toml", "cluster.name=dispatcher"), "a plan is about time"),
        (("small.toml", "--workers", "0"), "workers"),
        (("small.toml", "--needed", "ok.csv", "--target", "loss=1"), "use one of the two"),
        (("small.toml", "--needed", "x.csv"), "there is no file x.csv"),
        (("small.toml", "--target", "0.5"), "target is loss=… or accuracy=…"),
        (("small.toml", "--target", "loss=9"), "is reached before training"),
        (("small.toml", "--target", "accuracy=95"), "accuracy is a share"),
        (("small.toml", "task=quadratic", "--target", "accuracy=0.9"), "is never measured"),
        (("bytedance_se", "--target", "loss=0.5"), "give --spec FILE with [task] and [rule]"),
        (("small.toml", "--price", "2"), "price needs a target"),
        (("small.toml", "--target", "loss=0.5", "--price", "-1"), "price must not be negative"),
        (("small.toml", "--target", "loss=0.5", "--budget", "soon"), "budget is a time above 0"),
        (("small.toml", "--target", "loss=0.5", "--budget", "0.000001s"), "the budget of 1e-06 s"),
        (("small.toml", "--target", "loss=0.5", "--seeds", "0"), "seeds must be a whole number"),
        (("small.toml", "--workers", "8:4"), "workers is a number or a range such as 8:64"),
        (("small.toml", "--mtbf", "never"), "mtbf is a time above 0"),
        (("small.toml", "--repair", "1h"), "nothing says how often: give --mtbf too"),
        (("one.csv",), "one.csv has the times of one worker"),
        (("negative.csv",), "line 2: step_s must be finite and greater than 0, got '-1.0'"),
        (("time.csv",), "time may be when a step ended or how long it took"),
        (("small.toml", "rule.lr=-1"), "lr"),
        (("small.toml", "link={name='every',push=2,pull=1}"), "plan with link=full"),
        (("small.toml", "link={codec='sign'}"), "plan with link=full"),
        (("empty.toml",), "has no [cluster]"),
        (
            ("small.toml", "work={name='micro_batches',size=2}", "--target", "loss=0.5"),
            "work=gradient",
        ),
        (("small.toml", "work={name='micro_batches',size=2}"), "plan with work=gradient"),
    ],
)
def test_bad_plans_are_refused_and_nothing_is_written(
    cli: Cli, words: tuple[str, ...], message: str
) -> None:
    Path("bad.csv").write_text("worker,step_s\n0,1.0\n0,soon\n")
    Path("empty.toml").write_text("updates = 5\n")
    Path("ok.csv").write_text("workers,updates\n4,100\n")
    Path("one.csv").write_text("worker,step_s\n0,1.0\n0,1.5\n")
    Path("negative.csv").write_text("worker,step_s\n0,-1.0\n")
    Path("time.csv").write_text("host,time\na,1.0\nb,1.5\n")
    said = cli("plan", *words, "--gradients", "200")
    assert said.code == 2
    assert message in said.err.replace("\n", " ")
    assert not Path("plans").exists()


def test_a_target_that_nobody_reaches_is_told_with_the_best(cli: Cli) -> None:
    said = cli("plan", "small.toml", "updates=20", "--target", "loss=0.01", "--gradients", "400")
    assert said.code == 2
    assert "no candidate reached loss=0.01 within" in said.err
    assert "the nearest was loss = 0." in said.err
    assert not Path("plans/small/recommended.toml").exists()


def test_report_draws_the_timeline(cli: Cli) -> None:
    assert cli("run", "small.toml", "policy={name='backup',backups=1}").code == 0
    said = cli("report", "runs/small")
    assert "figure: runs/small/timeline.png" in said.out
    trace = json.loads(Path("runs/small/timeline.perfetto.json").read_text())
    outcomes = {e["cat"] for e in trace["traceEvents"] if e["name"] == "gradient"}
    assert {"applied", "dropped"} <= outcomes


def test_reproduce_and_bench_know_their_names(cli: Cli) -> None:
    assert "did you mean 'layer-staleness'?" in cli("reproduce", "layer-stalenes").err
    assert "did you mean 'schedule'?" in cli("bench", "schedules").err


def test_layer_staleness_is_the_published_one(tmp_path: Path) -> None:
    found = layer_staleness(tmp_path, updates=4000)
    by_layer = {row[0]: row for row in found.rows}
    bottom, top = by_layer[0], by_layer[17]
    assert abs(float(bottom[2] or 0) - 39) < 1
    assert abs(float(top[2] or 0) - float(top[1] or 0)) < 1
    for layer in (0, 11, 18):
        assert float(by_layer[layer][4] or 0) == pytest.approx(by_layer[layer][6], rel=0.04)
    assert found.figures[0].exists()


def test_studies_draw_and_tell(tmp_path: Path) -> None:
    speed = gap_aware_speedup(tmp_path, workers=(1, 32), gradients=5000, runs=2)
    assert float(speed.rows[1][1] or 0) == pytest.approx(1.22, abs=0.02)
    backups = backup_workers(tmp_path, rounds=600, simulated_rounds=20)
    ours = {str(row[0]): str(row[1]) for row in backups.rows}
    straight = ours["best split, order statistics, updates interpolated straight"]
    assert straight in ("95 + 5", "96 + 4", "97 + 3")
    for found in (speed, backups):
        assert found.figures[0].read_bytes().startswith(b"\x89PNG")


def test_partial_waiting_saves_what_the_paper_says(tmp_path: Path) -> None:
    rows = psp_times(tmp_path, iterations=20).rows
    seconds, without, with_jitter = ([float(row[i] or 0) for row in rows] for i in (3, 5, 6))
    assert seconds[2] == pytest.approx(10.5, abs=0.05)  # the rare delays have no effect left
    for ratios in (without, with_jitter):
        assert ratios[0] == 1
        assert ratios[0] > ratios[1] > ratios[2] >= ratios[3]
    assert with_jitter[3] == pytest.approx(0.683, abs=0.06)


def test_the_benchmark_compares_equal_schedules() -> None:
    found = bench_schedule(workers=(20, 40), gradients=400, repeats=1)
    rows = found.data()["rows"]
    assert {row["workers"] for row in rows} == {20, 40}
    kinds = {row["policy"].partition("(")[0] for row in rows}
    assert kinds == {
        *("Async", "Sync", "Backup", "Partial", "SoftSync", "StaleSynchronous", "BoundedDelay")
    }
    for row in rows:
        looped = row["workers"] == 20 or row["policy"] == "Async"
        assert (row["event loop"] is not None) == looped
        assert row["form ÷"] == pytest.approx(row["closed form"] / row["SimPy"])


def test_the_benchmark_notices_other_schedules() -> None:
    with pytest.raises(AssertionError, match="not the same"):
        check_same([schedule(p, Gamma(workers=3), 9) for p in (Async(), Sync())], None)
