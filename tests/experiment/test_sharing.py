"""Runs that share a GPU: how many at a time, and that it changes no bit."""

import importlib
import os
from pathlib import Path

import pytest
import torch

import tardigrad as tg
from tardigrad.engine.job import Job
from tardigrad.engine.memory import GIB
from tardigrad.experiment import Outcome, execute_cells, points, read_toml, sharing
from tardigrad.experiment.sweep import cells_of
from tests.engine.fast_cases import task
from tests.engine.test_stacked_sweep import SPEC


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    path = tmp_path / "swept.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def as_if_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("tardigrad.experiment.side_by_side")
    monkeypatch.setattr(module, "device_of_runs", lambda runs: torch.device("cuda"))
    monkeypatch.setattr(module, "may_stack", lambda runs: True)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def done(file: Path, *axes: str, jobs: int | None) -> tuple[dict[str, Outcome], list[str]]:
    said: list[str] = []
    cells = cells_of(points(read_toml(file), axes))
    found = list(execute_cells(cells, jobs=jobs, say=said.append))
    return {f"{outcome.point}": outcome for outcome in found}, said


def same_bits(some: dict[str, Outcome], others: dict[str, Outcome]) -> None:
    assert some.keys() == others.keys()
    for name, outcome in some.items():
        for one, other in zip(outcome.records, others[name].records, strict=True):
            assert {k: v for k, v in one.items() if k != "wall_s"} == {
                k: v for k, v in other.items() if k != "wall_s"
            }


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_runs_that_leave_a_gpu_idle_have_a_process_each(swept: Path) -> None:
    axes = "engine=auto", "rule.lr=[0.1,0.2]", "seed=[0,7]"
    found, said = done(swept, *axes, jobs=None)
    assert said[:2] == ["2 runs not stacked: 60 gradients are done sooner than compiling"] * 2
    assert said[2].startswith("4 runs, 2 at a time on the GPU, each in a process of its own: each")
    alone, said = done(swept, *axes, jobs=1)
    assert len(alone) == 4
    same_bits(found, alone)


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_runs_that_keep_it_busy_follow_one_another(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def many(engine: str, job: Job) -> int:
        asked.append(engine)
        return 8

    monkeypatch.setattr(sharing, "gradients_at_a_time", many)
    found, said = done(swept, "engine=exact", "seed=[0,7]", jobs=None)
    assert said == [
        "2 runs one after another: each keeps the GPU busy, with up to 8 gradients at a time"
    ]
    assert len(found) == 2
    assert asked == ["exact"]  # runs that differ in the seed alone take the same


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_so_do_those_that_do_not_fit_beside_each_other(swept: Path) -> None:
    found, said = done(swept, "engine=exact", "seed=[0,7]", "memory_gib=1.5", jobs=None)
    assert len(found) == 2
    (line,) = said
    assert line.startswith("2 runs one after another: each takes about ")
    assert line.endswith(" of the GPU's 1.5 GiB")


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_who_looks_on_is_not_sent_to_other_processes(swept: Path) -> None:
    cells = cells_of(
        points(read_toml(swept), ["engine=exact", "seed=[0,7]"]), lambda label, seed: []
    )
    said: list[str] = []
    assert len(list(execute_cells(cells, jobs=None, say=said.append))) == 2
    assert said == ["2 runs one after another: they are looked on at, or made of Python objects"]


@pytest.mark.parametrize(("workers", "expected"), [(40, 16), (1, 1)])
def test_how_many_gradients_at_a_time(workers: int, expected: int) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=workers), updates=200)
    job = Job.on_one_shard(schedule, task(), tg.rules.sgd(lr=0.1))
    assert sharing.gradients_at_a_time("fast", job) == expected
    assert sharing.gradients_at_a_time("exact", job) == 1
    assert sharing.gradients_at_a_time("auto", job) == 1  # 200 are done sooner than compiling
    groups = tg.schedule(tg.SoftSync(groups=4), tg.Gamma(workers=8), updates=50)
    job = Job.on_one_shard(groups, task(), tg.rules.sgd(lr=0.1))
    assert sharing.gradients_at_a_time("fast", job) == 1  # left to the exact engine


def test_a_process_has_its_share_of_the_device_that_it_is_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = {"cpu": 100 * GIB, "cuda": 20 * GIB}
    monkeypatch.setattr(sharing, "check_budget", lambda own, device: free[device.type])
    assert sharing.share_gib(torch.device("cpu"), 4) == 25
    assert sharing.share_gib(torch.device("cuda"), 4) == 20 / 4 - 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("jobs", [None, 2])
def test_on_a_gpu_processes_change_no_bit(swept: Path, jobs: int | None) -> None:
    axes = "task.device=cuda", "engine=auto", "rule.lr=[0.1,0.2]", "seed=[0,7]"
    found, said = done(swept, *axes, jobs=jobs)
    assert "each in a process of its own" in said[-1]
    same_bits(found, done(swept, *axes, jobs=1)[0])
