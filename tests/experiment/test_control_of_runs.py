"""Runs of specs that are stopped, interrupted, extended and looked at while they go."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tardigrad as tg
from tardigrad.experiment import Spec, run
from tardigrad.recording.folder import RunFolder
from tests.cli.command_line import SMALL, Cli


def spec(**changes: Any) -> Spec:
    return Spec.of({**tomllib.loads(SMALL), **changes})


class Killed(Exception):
    pass


class KillAt(tg.Observer):
    """Ends the run as a kill would, with the lines of its metrics that were there."""

    def __init__(self, update: int, folder: Path) -> None:
        self.update, self.folder = update, folder
        self.lines: list[str] = []

    def updated(self, tick: tg.Tick) -> None:
        if tick.updates == self.update:
            self.lines = (self.folder / "metrics.jsonl").read_text().splitlines()
            raise Killed


def updates_in(folder: Path) -> list[int]:
    return [int(record["update"]) for record in RunFolder(folder).metrics()]


def test_metrics_are_written_as_they_come_and_never_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = spec(evaluate_every=10, checkpoint_every=25)
    kill = KillAt(44, folder)
    with pytest.raises(Killed):
        run(small, folder, observers=[kill])
    assert [json.loads(line)["update"] for line in kill.lines] == [0, 10, 20, 30, 40]
    assert updates_in(folder) == [0, 10, 20, 30, 40]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 5')  # and a line that it did not finish
    done = run(small, folder, resume=True)
    assert updates_in(folder) == [0, 10, 20, 30, 40, 50, 60]
    assert RunFolder(folder).metrics() == done.history.records


def test_what_ended_a_run_is_kept_with_it_and_it_goes_on_with_another_target(
    tmp_path: Path,
) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    run(spec(evaluate_every=5, stop={"loss": 0.6}), folder)
    summary = RunFolder(folder).summary()
    assert summary["status"] == "finished"
    assert summary["ended_by"] == "loss"
    assert "the target is 0.6" in summary["why"]
    ended = summary["updates"]
    assert 0 < ended < 60
    assert RunFolder(folder).schedule().updates == ended
    again = run(spec(evaluate_every=5, stop={"loss": 0.6}), folder, resume=True)
    assert again.ended is not None
    assert (again.ended.by, again.ended.updates) == ("loss", ended)
    run(spec(evaluate_every=5), folder, resume=True)
    run(spec(evaluate_every=5), whole)
    assert RunFolder(folder).summary()["ended_by"] == "updates"
    assert (folder / "spec.toml").read_text() == (whole / "spec.toml").read_text()
    assert RunFolder(folder).schedule() == RunFolder(whole).schedule()
    one, other = (load_file(place / "params.safetensors") for place in (folder, whole))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert updates_in(folder) == updates_in(whole)


def test_more_updates_extend_a_finished_run(cli: Cli) -> None:
    assert cli("run", "small.toml", "--out", "run").code == 0
    said = cli("run", "small.toml", "updates=120", "--out", "run", "--resume")
    assert said.code == 0, said.err
    assert "update 63 of 120" in said.err
    assert "update 60 of" not in said.err  # evaluated every 3 updates, as it was begun
    assert cli("run", "small.toml", "updates=120", "evaluate_every=3", "--out", "whole").code == 0
    one, other = (load_file(f"{place}/params.safetensors") for place in ("run", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in other)
    assert updates_in(Path("run")) == updates_in(Path("whole"))
    said = cli("run", "small.toml", "updates=30", "--out", "run", "--resume")
    assert said.code == 2
    assert "a run of 120 updates, which cannot be made one of 30" in said.err


def test_an_extended_run_is_resumed_and_extended_again(cli: Cli) -> None:
    cli("run", "small.toml", "--out", "run")
    for updates in ("updates=120", "updates=120", "updates=180"):
        said = cli("run", "small.toml", updates, "--out", "run", "--resume")
        assert said.code == 0, said.err
    spec = Spec.load("run/spec.toml")
    assert (spec.updates, spec.evaluate_every, spec.checkpoint_every) == (180, 3, 6)
    said = cli("run", "small.toml", "updates=180", "evaluate_every=5", "--out", "run", "--resume")
    assert "evaluate_every was 3, and is 5;" in said.err
    with RunFolder.open(Path("run")).locked():
        said = cli("run", "small.toml", "updates=180", "--out", "run", "--resume")
    assert (said.code, "is being written" in said.err) == (2, True)


def test_a_changed_rate_is_named_at_a_resume(cli: Cli) -> None:
    cli("run", "small.toml", "rule.lr={rate='cosine',lr=0.1,over=50}")
    said = cli("run", "small.toml", "rule.lr={rate='cosine',lr=0.1,over=80}", "--resume")
    assert said.code == 2
    assert "with this one: rule.lr.over was 50, and is 80;" in said.err
    said = cli("run", "small.toml", "--resume")
    assert "rule.lr was {" in said.err
    assert "and is 0.05" in said.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("stop.accuracy=0.9", "evaluate_every=0"), "accuracy would never be measured, because"),
        (("stop.accuracy=90",), "so 90 would never do: write 0.95 for 95 %"),
        (("stop.patience=21",), "patience = 21 can never happen"),
        (("stop.loss=low",), "stop.loss must be a number"),
        (("stop.los=1",), "[stop] has no key 'los'; did you mean 'loss'?"),
        (
            ("stop.accuracy=0.9", "task={name='quadratic'}"),
            "gives validation_distance, validation_loss, and no validation_accuracy",
        ),
        (("stop.virtual_s=5", "cluster.name=dispatcher"), "counts events, without seconds"),
        (("log=tensorbord",), "there is no logger 'tensorbord'; did you mean 'tensorboard'?"),
        (("log={name='wandb',projet='a'}",), "[log] has no key 'projet'; did you mean 'project'?"),
        (("log=['tensorboard',{project='a'}]",), "log.1 does not say which logger"),
    ],
)
def test_bad_control_is_one_message_and_writes_nothing(
    cli: Cli, changes: tuple[str, ...], message: str
) -> None:
    said = cli("run", "small.toml", *changes)
    assert said.code == 2
    assert message in said.err
    assert "Traceback" not in said.err
    assert [path.name for path in Path().iterdir()] == ["small.toml"]


def test_without_a_terminal_there_is_a_line_per_evaluation(cli: Cli) -> None:
    said = cli("run", "small.toml", "evaluate_every=30")
    lines = [line for line in said.err.splitlines() if line.startswith("update ")]
    assert [line.split(",")[0] for line in lines] == [f"update {n} of 60" for n in (0, 30, 60)]
    assert "validation_loss" in lines[0]
    assert "updates/s" in lines[1]
    assert "left" in lines[1]


def test_comparisons_stop_each_entry_by_itself(cli: Cli) -> None:
    stop = ("stop.loss=0.6", "evaluate_every=5")
    rules = ("--rules", "sgd,sgd:lr=0.001")
    said = cli("compare", "small.toml", "log=tensorboard", *stop, *rules, "--out", "c")
    assert said.code == 0
    told = [path.parent.parent.name for path in Path("c/log").rglob("events.*")]
    assert sorted(told) == ["000-sgd-seed=0", "001-sgd_lr=0.001-seed=0"]
    fast, slow = (outcome["summary"] for outcome in RunFolder(Path("c")).outcomes())
    assert fast["ended_by"] == "loss"
    assert fast["updates"] < 60
    assert (slow["ended_by"], slow["updates"]) == ("updates", 60)
