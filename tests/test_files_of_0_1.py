"""What version 0.1 wrote (tests/data/v0_1) still loads, goes on and is replayed, or is refused by
name with what to do."""

import json
import platform
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import tardigrad as tg
from tardigrad import report as reports
from tardigrad.cli import main
from tardigrad.core.computer import processor
from tardigrad.experiment import Spec, replay, run, run_on_ray
from tardigrad.recording.folder import RunFolder

V0_1 = Path(__file__).parent / "data" / "v0_1"
SCHEDULES = json.loads((V0_1 / "schedules.json").read_text())
INTERRUPTED = ("exact", "left", "dana", "fast", "stream", "together")
RECORDED = ("recorded", "recorded-logistic")

REFUSED = {"dana": "did not save which workers had left"}
"""Folders that this version refuses, and what the refusal says of the reason."""

INSTEAD = r"start in a new folder|--out DIR|tardigrad 0\.1"
"""What a refusal must say can be done."""


def copied(name: str, to: Path) -> Path:
    return Path(shutil.copytree(V0_1 / name, to / name))


def spec_of(folder: Path) -> Spec:
    return Spec.of(RunFolder.open(folder).spec())


def saved(folder: Path) -> dict[str, torch.Tensor]:
    """What a run has come to, named as 0.1 did, which kept both in one file."""
    found = load_file(folder / "params.safetensors")
    average = folder / "average.safetensors"
    if average.exists():
        found |= {f"ema.{name}": tensor for name, tensor in load_file(average).items()}
    return found


def made_here() -> bool:
    """Whether this computer is like the one that they were made on, which 0.1 did not note as a
    whole: to the bit, another of the same maker might differ."""
    made_on = json.loads((V0_1 / "made_on.json").read_text())
    here = {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "maker": processor().split()[0],
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
    }
    return bool(made_on == here)


def same_numbers(found: dict[str, torch.Tensor], file: Path, to_the_bit: bool = True) -> bool:
    """To the bit where the computer is like the one they were made on, else to rounding."""
    expected = load_file(file)
    if found.keys() != expected.keys():
        return False
    if to_the_bit and made_here():
        return all(torch.equal(found[name], expected[name]) for name in expected)
    return all(torch.allclose(found[name], expected[name], rtol=1e-5) for name in expected)


def cli(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tardigrad", *words])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_loads_with_what_it_held(name: str) -> None:
    held, loaded = dict(SCHEDULES[name]), tg.Schedule.load(V0_1 / f"{name}.schedule")
    found = [loaded.group(g).tolist() for g in range(loaded.groups)]
    assert found == held.pop("groups")
    for field, value in held.items():
        assert np.asarray(getattr(loaded, field)).tolist() == value, field


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_can_be_executed_and_saved_again(name: str, tmp_path: Path) -> None:
    loaded = tg.Schedule.load(V0_1 / f"{name}.schedule")
    task = tg.tasks.quadratic(6)
    ended = tg.execute(loaded, task, tg.rules.sgd(0.05), "exact")
    assert len(ended.history.loss) == loaded.updates
    loaded.save(tmp_path / "again")
    assert tg.Schedule.load(tmp_path / "again").digest == loaded.digest


@pytest.mark.parametrize("name", ["exact", "sweep", *RECORDED, "left-interrupted"])
def test_a_folder_is_reported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(name, tmp_path)
    assert cli(monkeypatch, "report", str(folder)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert list(folder.glob("*.png"))
    if name == "sweep":
        sweep = reports.Sweep.load(folder)
        assert sweep is not None
        assert len(RunFolder.open(folder).outcomes()) == 4
    else:
        records = RunFolder.open(folder).metrics()
        assert [record["update"] for record in records][:2] == [0, 10]


def test_a_finished_run_resumes_to_itself(tmp_path: Path) -> None:
    folder = copied("exact", tmp_path)
    run(spec_of(folder), folder, resume=True, say=lambda line: None)
    assert same_numbers(saved(folder), V0_1 / "exact/params.safetensors")


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_run_goes_on_to_the_end_it_had(name: str, tmp_path: Path) -> None:
    folder = copied(f"{name}-interrupted", tmp_path)
    said: list[str] = []
    if name in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[name]) as refusal:
            run(spec_of(folder), folder, resume=True, say=said.append)
        refusal.match(INSTEAD)
        return
    run(spec_of(folder), folder, resume=True, say=said.append)
    assert any("made by tardigrad 0.1" in line for line in said)
    ended = saved(folder)
    whole = V0_1 / ("exact/params.safetensors" if name == "exact" else f"{name}.params")
    # The fast engine promises the same bits of one version only: its code is compiled.
    assert same_numbers(ended, whole, to_the_bit=name not in ("fast", "stream"))
    assert RunFolder.open(folder).summary()["status"] == "finished"
    assert [record["update"] for record in RunFolder.open(folder).metrics()] == [0, 10, 20]


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_is_refused_by_name_and_replays_when_told_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(name, tmp_path)
    assert cli(monkeypatch, "replay", str(folder)) == 2
    refusal = capsys.readouterr().err
    assert "recorded with tardigrad 0.1.0, which did not note the code it used" in refusal
    assert "--force" in refusal
    replayed = replay(folder, force=True)
    assert replayed.compared > 0
    if not made_here() and replayed.difference is not None:  # it stops there
        return
    assert replayed.updates == 20
    layout = spec_of(folder).make_task().layout
    found = dict(layout.unflatten(replayed.run.params))
    if replayed.run.average is not None:
        found |= {f"ema.{n}": t for n, t in layout.unflatten(replayed.run.average).items()}
    assert same_numbers(found, V0_1 / name / "params.safetensors")


def test_an_interrupted_run_on_ray_is_refused_by_name(tmp_path: Path) -> None:
    """Before any process is started, and with its files as they were."""
    folder = copied("ray-interrupted", tmp_path)
    with pytest.raises(ValueError, match=r"begun by tardigrad 0\.1, whose logs") as refusal:
        run_on_ray(spec_of(folder), folder, resume=True, impose=True)
    refusal.match(INSTEAD)
    before, after = (sorted(p.name for p in f.rglob("*")) for f in (V0_1 / folder.name, folder))
    assert before == after
