"""[work] in files: made from tables, left out where it says nothing, told of schedules."""

from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad.experiment import Spec
from tardigrad.work import OneGradient

FILE = """
updates = 30
evaluate_every = 10
engine = "exact"
[task]
name = "logistic_regression"
features = 5
train_size = 60
[rule]
name = "sgd"
lr = 0.7
momentum = 0.9
nesterov = true
[policy]
name = "sync"
[cluster]
name = "gamma"
workers = 3
"""
WORK = """
[work]
name = "local_steps"
steps = 4
inner = {name = "adamw", lr = 0.01}
"""


def spec(tmp_path: Path, text: str) -> Spec:
    path = tmp_path / "exp.toml"
    path.write_text(text)
    return Spec.load(path)


def test_a_table_makes_the_work(tmp_path: Path) -> None:
    made = spec(tmp_path, FILE + WORK)
    assert made.make_work() == tg.LocalSteps(4, tg.rules.adamw(0.01))
    assert Spec.load(write(tmp_path, made.toml())) == made
    schedule = made.make_schedule()
    assert schedule is not None
    assert schedule.about["batches"] == 4
    plain = spec(tmp_path, FILE)
    assert "work" not in plain.data()
    assert plain.make_work() == OneGradient()
    assert plain.control != made.control


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "again.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WORK.replace("steps = 4", "steps = 0"), "steps must be"),
        (WORK.replace("local_steps", "locl_steps"), "there is no work"),
        (WORK.replace("adamw", "adamv"), "work.inner.name: there is no rule"),
        (WORK.replace("lr = 0.01", "rate = 0.01"), "work.inner"),
    ],
)
def test_what_is_wrong_is_told_by_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace(".", r"\.")):
        spec(tmp_path, FILE + text)


def test_a_run_in_a_folder_is_replayed_and_loaded(tmp_path: Path) -> None:
    made = spec(tmp_path, FILE + WORK)
    schedule = made.make_schedule()
    assert schedule is not None
    run = tg.execute(
        schedule, made.make_task(), made.make_rule(), "exact", work=made.make_work(),
        checkpoints=tg.Checkpoints(tmp_path / "run"),
    )  # fmt: skip
    loaded = tg.Run.load(tmp_path / "run", made.make_task(), made.make_rule(), made.make_work())
    assert tg.replay(loaded).difference is None
    assert run.work == loaded.work
    other = tg.Run.load(tmp_path / "run", made.make_task(), made.make_rule())
    assert tg.replay(other).difference is not None
