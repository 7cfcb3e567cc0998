"""[work] clip_norm in files, and [rule] clip_norm, where it stood in version 0.1."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad.experiment import Spec, run
from tardigrad.experiment.comparison import entries
from tardigrad.planning.measure import Setting
from tardigrad.planning.trained import every_candidate
from tardigrad.recording.folder import SPEC
from tests.work.test_works_in_files import FILE, WORK

OLD = FILE.replace("[rule]\n", "[rule]\nclip_norm = 0.05\n")
NEW = FILE + "[work]\nname = 'gradient'\nclip_norm = 0.05\n"
NOW = r"\[rule\] clip_norm = 0\.05 is now \[work\] clip_norm"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "exp.toml"
    path.write_text(NEW)
    return path


def old(file: Path, text: str = OLD) -> Spec:
    file.write_text(text)
    with pytest.warns(FutureWarning, match=NOW) as told:
        made = Spec.load(file)
    assert len(told) == 1
    return made


def test_a_file_says_it_in_work(file: Path) -> None:
    made = Spec.load(file)
    assert made.make_work() == tg.OneGradient(clip_norm=0.05)
    assert Spec.load(file, ["work.clip_norm=2"]).make_work() == tg.OneGradient(2.0)
    assert made.data()["work"] == {"name": "gradient", "clip_norm": 0.05}
    file.write_text(FILE)
    assert Spec.load(file, ["work.clip_norm=0.05", "work.name=gradient"]) == made


def test_a_file_of_before_is_the_same_experiment(file: Path) -> None:
    new = Spec.load(file)
    assert old(file) == new
    assert old(file, OLD + "[work]\nname = 'gradient'\n") == new
    assert old(file, "work = 'gradient'\n" + OLD) == new
    assert old(file, OLD + "[work]\nname = 'gradient'\nclip_norm = 0.05\n") == new


@pytest.mark.parametrize("work", [WORK, "[work]\nname = 'gradient'\nclip_norm = 1.0\n"])
def test_a_file_that_says_two_things_is_refused(file: Path, work: str) -> None:
    file.write_text(OLD + work)
    with pytest.raises(ValueError, match=rf"{NOW}, and \[work\] is .*: leave it out of \[rule\]"):
        Spec.load(file)


def test_a_folder_of_before_is_gone_on_with_and_loaded(file: Path, tmp_path: Path) -> None:
    new, folder = Spec.load(file), tmp_path / "run"
    whole = run(new, tmp_path / "whole").params
    run(Spec.load(file, ["updates=20", "checkpoint_every=3"]), folder)
    said = (folder / SPEC).read_text()
    section = '\n[work]\nname = "gradient"\nclip_norm = 0.05\n'
    assert section in said
    as_before = said.replace(section, "").replace("[rule]\n", "[rule]\nclip_norm = 0.05\n")
    (folder / SPEC).write_text(as_before)
    with pytest.warns(FutureWarning, match=NOW):
        run(Spec.load(file, ["checkpoint_every=3"]), folder, resume=True)
    loaded = tg.Run.load(folder)
    assert torch.equal(loaded.params, whole)
    assert loaded.work == tg.OneGradient(0.05)


def test_a_rule_of_ones_own_keeps_an_argument_of_that_name(file: Path) -> None:
    """What it makes of it is its own; a rule that says it still hands it on to the work."""
    (file.parent / "mine.py").write_text(
        "import tardigrad as tg\n"
        "def mine(lr: float, clip_norm: float):\n"
        "    return tg.Rule(lr, tg.rules.Sgd(), clip_norm=clip_norm / 2)\n"
        "def other(lr: float):\n"
        "    return tg.rules.sgd(lr)\n"
    )
    own = "[rule]\nname = 'mine.py:NAME'\nlr = 0.1\nclip_norm = 0.05\n[policy]"
    text = FILE[: FILE.index("[rule]")] + own + FILE.partition("[policy]")[2]
    file.write_text(text.replace("NAME", "mine"))
    with pytest.warns(FutureWarning, match="clip_norm of a rule is now the work's"):
        made = Spec.load(file)
    assert made.work == {"name": "gradient"}
    with pytest.warns(FutureWarning, match="clip_norm of a rule is now the work's"):
        done = run(made, file.parent / "run")
    assert done.work == tg.OneGradient(0.025)
    assert old(file, text.replace("NAME", "other")).make_work() == tg.OneGradient(0.05)


def test_compared_rules_clip_as_the_file_says(file: Path) -> None:
    """They meet one schedule, however much each clips."""
    (plain,) = entries(Spec.load(file), "fasgd:lr=0.1")
    assert plain.spec.make_work() == tg.OneGradient(0.05)
    file.write_text(FILE)
    free = Spec.load(file)
    with pytest.warns(FutureWarning, match=NOW):
        (own,) = entries(free, "sgd:clip_norm=0.05")
    assert own.spec.make_work() == tg.OneGradient(0.05)
    assert own.spec.control == free.control
    assert Spec.load(file, ["work={name='micro_batches',size=2}"]).control != free.control


def test_a_plan_trains_with_it(file: Path) -> None:
    spec, setting = Spec.load(file), Setting(tg.Gamma(workers=3), gradients=200)
    spec = Spec.of(spec.data() | {"rule": {"name": "sgd", "lr": 0.1}})
    found = every_candidate(setting, spec, 1, setting.collect_times_s())
    local: list[Any] = [one.work for one in found if one.work]
    assert local
    assert all(work["clip_norm"] == 0.05 for work in local)
