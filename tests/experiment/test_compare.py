"""tg.compare and tg.sweep: what runs meet, what is kept and written, and what is refused."""

import csv
import os
import signal
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.experiment import CellProgress, Outcome
from tardigrad.recording.folder import RunFolder
from tardigrad.tasks import logistic_regression, quadratic
from tests.cli.command_line import Cli

DATA: dict[str, Any] = {
    "updates": 40,
    "task": {"name": "quadratic", "dimension": 6, "noise": 0.1},
    "rule": {"name": "sgd", "lr": 0.1},
    "cluster": {"name": "gamma", "workers": 4},
}
RULES = {"sgd": tg.rules.sgd(0.1), "half": "sgd:lr=0.05", "fasgd": {"name": "fasgd", "lr": 0.01}}


def bowl(seed: int) -> tg.Task:
    """At the top of a module, so that other processes find it."""
    return quadratic(dimension=6, noise=0.1, seed=seed)


def compared(task: Any = bowl, rules: Any = RULES, **more: Any) -> tg.Comparison:
    usual: dict[str, Any] = {"cluster": tg.Gamma(workers=4), "updates": 40, "seeds": 2}
    return tg.compare(task, rules, **(usual | more))


def numbers(found: tg.Comparison | tg.Sweep) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "wall_s"} for record in found.records()]


def test_every_rule_meets_what_a_single_simulation_meets() -> None:
    found = compared()
    assert found.met_the_same
    assert [one.label for one in found.series] == ["sgd", "half", "fasgd"]
    rules = {"sgd": 0.1, "half": 0.05}
    for label, lr in rules.items():
        (one,) = [one for one in found.series if one.label == label]
        assert one.seeds == [0, 1]
        for seed, records in zip(one.seeds, one.runs, strict=True):
            single = tg.simulate(
                bowl(seed), tg.rules.sgd(lr), cluster=tg.Gamma(workers=4), updates=40, seed=seed,
                evaluation=2,
            )  # fmt: skip
            drop = {"wall_s": 0}
            assert [r | drop for r in records] == [r | drop for r in single.history.records]


def test_processes_give_the_bits_of_one_after_another() -> None:
    one, two = compared(jobs=1), compared(jobs=2)
    assert numbers(one) == numbers(two)
    assert len(numbers(one)) == 3 * 2 * 21
    assert [o.label for o in one.series] == [o.label for o in two.series]


def test_a_spec_and_its_parts_come_to_the_same() -> None:
    spec = tg.Spec.of(DATA)
    by_name = tg.compare(spec, "sgd,sgd:lr=0.05", seeds=2)
    by_object = tg.compare(spec, {"sgd": tg.rules.sgd(0.1), "sgd:lr=0.05": "sgd:lr=0.05"}, seeds=2)
    assert numbers(by_name) == numbers(by_object)
    assert by_object.met_the_same
    assert by_name.title == "quadratic, 4 workers (gamma), async"


def test_one_task_for_all_seeds_is_told_and_still_paired() -> None:
    found = compared(logistic_regression(train_size=60, validation=20))
    assert found.one_task
    assert found.met_the_same
    first = [run[0]["validation_loss"] for run in found.series[0].runs]
    assert first[0] == first[1]  # the same initial weights
    assert "one task for all seeds" in str(found.table())
    assert not compared().one_task


def test_threads_are_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        compared(seeds=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_comparison_is_two_lines() -> None:
    first, second = repr(compared()).splitlines()
    assert first == "Comparison: bowl, 4 workers (Gamma), Async: 3 rules, 2 seeds, 6 runs"
    assert second.startswith("  lowest mean validation_loss at the end: sgd, 0.")


def test_every_format_is_written(tmp_path: Path) -> None:
    found = compared()
    made = found.save(tmp_path / "all")
    assert {path.suffix for path in made} == {".png", ".pdf", ".svg", ".csv", ".tex"}
    assert {path.stem for path in made} == {"comparison", "timeline"}
    assert (tmp_path / "all/comparison.pdf").read_bytes().startswith(b"%PDF")
    assert b"/Type3" not in (tmp_path / "all/comparison.pdf").read_bytes()
    svg = xml.etree.ElementTree.parse(tmp_path / "all/comparison.svg").getroot()
    assert svg.tag.endswith("svg")
    assert (tmp_path / "all/comparison.tex").read_text().count(r"\begin{tabular}") == 2
    for ending in ("pdf", "svg", "csv", "tex"):  # the same results, the same bytes
        found.save(tmp_path / f"again.{ending}")
        again = (tmp_path / f"again.{ending}").read_bytes()
        assert again == (tmp_path / f"all/comparison.{ending}").read_bytes(), ending


def test_the_csv_has_every_digit_of_every_run(tmp_path: Path) -> None:
    found = compared()
    found.save(tmp_path / "runs.csv", target=0.3)
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["rule"], row["seed"]) for row in rows] == [
        (label, seed) for label in RULES for seed in "01"
    ]
    finals = [x for one in found.series for x in one.final("validation_loss")]
    assert [float(row["final_validation_loss"]) for row in rows] == finals
    reached = [t for one in found.series for t in one.first_below("validation_loss", 0.3)]
    assert [row["time_s_to_0.3"] for row in rows] == ["" if t is None else str(t) for t in reached]


def test_a_frame_has_a_row_per_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compared()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match="pip install pandas, or take records"):
        found.frame()
    first, *_, last = found.records()
    assert list(first)[:3] == ["rule", "seed", "update"]
    assert (last["rule"], last["seed"], last["update"]) == ("fasgd", 1, 40)


class Seen(tg.Observer):
    found: list[tuple[str, int, float]] = []  # noqa: RUF012

    def __init__(self, label: str, seed: int) -> None:
        self.label, self.seed = label, seed

    def evaluated(self, record: Any) -> None:
        self.found.append((self.label, self.seed, record["validation_loss"]))


def test_each_run_has_its_own_observers() -> None:
    Seen.found.clear()
    found = compared(observers=lambda label, seed: [Seen(label, seed)])
    expected = [(r["rule"], r["seed"], r["validation_loss"]) for r in found.records()]
    assert sorted(Seen.found) == sorted(expected)


class StopsAfter(CellProgress):
    def __init__(self, runs: int) -> None:
        self.left = runs

    def ended(self, outcome: Outcome) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_had_ended_is_kept_when_it_is_interrupted(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        compared(folder=tmp_path / "kept", progress=StopsAfter(2), jobs=jobs)
    assert len(RunFolder.open(tmp_path / "kept").outcomes()) == 2
    found = tg.Comparison.load(tmp_path / "kept")
    assert found is not None
    assert sum(len(one.runs) for one in found.series) == 2
    str(found.table())


def dies(seed: int) -> tg.Task:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_a_process_that_dies_is_told_with_what_to_do() -> None:
    with pytest.raises(ChildProcessError, match=r"ended before its run did.*use fewer jobs"):
        compared(dies, jobs=2)


def test_a_folder_of_python_objects_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compared(folder=tmp_path / "kept")
    loaded = tg.Comparison.load(tmp_path / "kept")
    assert loaded is not None
    assert numbers(loaded) == numbers(found)
    assert loaded.title == found.title
    assert str(loaded.table()) == str(found.table())


def test_what_fails_at_once_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"at sgd, seed 0: task\(0\) must return a task"):
        compared(lambda seed: 3, folder=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_a_sweep_gathers_seeds() -> None:
    found = tg.sweep(DATA, {"rule.lr": np.array([0.1, 0.2]), "updates": 20}, seeds=3)
    assert [one.seeds for one in found.series] == [[0, 1, 2]] * 2
    assert found.keys == ["rule.lr"]
    assert found.series[0].runs[0][-1]["update"] == 20
    words = tg.sweep(tg.Spec.of(DATA), ["rule.lr=[0.1,0.2]", "updates=20", "seed=[0,1,2]"])
    assert {r["validation_loss"] for r in numbers(found)} >= {
        r["validation_loss"] for r in numbers(words) if r["update"] == 20
    }
    (one,) = found.differences(baseline="rule.lr=0.1")
    assert one.label == "rule.lr=0.2"
    with pytest.raises(ValueError, match="say with which point"):
        found.differences()
    first, _ = repr(found).splitlines()
    assert first == "Sweep: quadratic: rule.lr: 2 points, 3 seeds, 6 runs"


MINE: Any = [tg.Observer()]
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: compared(rules={}), "rules is empty"),
    (lambda: compared(rules={"a": 3}), r"rules\['a'\] must be a rule such as"),
    (lambda: compared(rules="sgd"), r"rules\['sgd'\] has no lr, .* write \"sgd:lr=0.1\""),
    (lambda: compared(rules="sgd:lr=1,sgt:lr=1"), "did you mean 'sgd'"),
    (lambda: compared(3), "task must be a task, a function"),
    (lambda: compared(baseline="sdg"), "baseline 'sdg' is not .* did you mean 'sgd'"),
    (lambda: compared(seeds=0), "seeds must be a whole number of at least 1"),
    (lambda: compared(jobs=0), "jobs must be a whole number of at least 1"),
    (lambda: compared(evaluation=0), "evaluation=0 makes none"),
    (lambda: compared(cluster=None), "cluster is missing"),
    (lambda: compared(update=3), "there is no 'update' to set"),
    (lambda: compared(observers=MINE), "give a function of label and seed"),
    (lambda: compared(lambda seed: bowl(seed), jobs=2), "sgd cannot be sent to other processes"),
    (lambda: tg.compare(tg.Spec.of(DATA), "sgd", updates=3), "the spec says its own updates"),
    (lambda: tg.compare("none.toml", "sgd"), "there is no file none.toml"),
    (lambda: tg.compare(tg.Spec.of(DATA | {"log": "tensorboard"}), "sgd"), "give folder=PATH"),
    (lambda: tg.sweep(DATA, {"rule.lr": [1], "seed": [0]}, seeds=2), "seeds are given twice"),
    (lambda: tg.sweep(DATA, {"rule.lr": 0.1}), "there is nothing to sweep"),
    (lambda: tg.sweep(DATA, {"rule.lr": [0.1]}, observers=MINE), "give a function of label"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[words for _, words in REFUSED])
def test_bad_input_is_one_clear_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as told:
        call()
    assert "\n" not in str(told.value)


def test_files_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    found = compared(seeds=1)
    with pytest.raises(ValueError, match=r"must end in \.png, \.pdf, \.svg$"):
        found.plot(tmp_path / "figure.jpg")
    with pytest.raises(ValueError, match="there is no folder"):
        found.save(tmp_path / "nowhere/figure.pdf")


def test_the_command_writes_the_files_that_are_asked_for(cli: Cli) -> None:
    words = ("compare", "small.toml", "updates=20", "--rules", "sgd,adam", "--seeds", "2")
    outs = ("--out", "comparison.pdf", "--out", "table.tex")
    said = cli(*words, *outs, "--baseline", "adam", "--jobs", "2")
    assert said.code == 0, said.err
    assert "4 runs, 2 at a time, each in a process of its own" in said.err
    assert "difference from adam, paired by seed: same schedule" in said.out
    assert Path("comparison.pdf").read_bytes().startswith(b"%PDF")
    assert "difference from adam" in Path("table.tex").read_text()
    kept = {path.name for path in Path("runs/small-compare").iterdir()}
    assert {"comparison.csv", "comparison.png", "comparison.jsonl", "spec.toml"} <= kept
    assert cli(*words, *outs).code == 0  # again: a file is asked for, so a free folder is found
    assert Path("runs/small-compare-2").is_dir()
    again = cli("report", "runs/small-compare", "--baseline", "adam", "--out", "again.csv")
    assert again.out.partition("figure:")[0] == said.out.partition("figure:")[0]
    assert Path("again.csv").read_text() == Path("runs/small-compare/comparison.csv").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "figure.jpg"), "figure.jpg does not say what to write"),
        (("--out", "no/figure.pdf"), "there is no folder no"),
        (("--out", "a", "--out", "b"), "--out names two folders, a and b"),
        (("--baseline", "adm"), "baseline 'adm' is not among what is compared"),
        (("--seeds", "0"), "seeds must be a whole number of at least 1"),
        (("--jobs", "0"), "jobs must be a whole number of at least 1"),
    ],
)
def test_bad_options_are_told_before_anything_runs(
    cli: Cli, words: tuple[str, ...], message: str
) -> None:
    said = cli("compare", "small.toml", "--rules", "sgd,adam", *words)
    assert said.code == 2
    assert message in said.err
    assert "done in" not in said.err
    assert not Path("runs").exists()
