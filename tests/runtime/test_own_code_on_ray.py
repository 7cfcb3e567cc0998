"""Code of the user's own on real processes, which find none of its files by name."""

import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import tardigrad as tg
from tardigrad.cli import main
from tardigrad.core.own_code import factory, own_modules, own_name
from tardigrad.experiment import run_on_ray
from tardigrad.recording.folder import RunFolder
from tardigrad.runtime import ActorPool, Live
from tardigrad.runtime.sending import check_sendable, cloudpickle, own_code_sent
from tests.experiment.own_files import RULE, forgotten, write

SPEC = """
updates = 30
shards = 2
checkpoint_every = 10
[task]
name = "lib/own_line.py:line"
[rule]
name = "lib/mine.py:mine"
lr = 0.05
power = 0.75
[policy]
name = "lib/own_line.py:Twos"
[cluster]
name = "gamma"
workers = 2
mean_s = 0.01
"""
HELPER = "import torch\n\nclass Net(torch.nn.Linear):\n    pass\n"
TASK = '''
import own_net
import torch
import tardigrad as tg
from dataclasses import dataclass
from tardigrad.tasks import Data, Split
from tardigrad.tasks.module import initialised

@dataclass(frozen=True)
class Twos(tg.Policy):
    """As asynchronous, under a name of its own."""
    def push_half(self, workers):
        return tg.Async().push_half(workers)
    def pull_half(self, shards):
        return tg.Async().pull_half(shards)

def squared(output, target):
    return ((output - target) ** 2).mean()

def line(seed: int = 0):
    inputs = torch.linspace(-1, 1, 64).reshape(-1, 1)
    points = Split(inputs, 3 * inputs)
    model = initialised(lambda: own_net.Net(1, 1), seed)
    return tg.ModuleTask(model, squared, Data(points, points), 4, seed=seed)
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A spec with its code in another folder than the working one."""
    monkeypatch.chdir(tmp_path)
    write("project/lib/own_net.py", HELPER)
    write("project/lib/own_line.py", TASK)
    write("project/lib/mine.py", RULE)
    with forgotten(tmp_path):
        yield write("project/real.toml", SPEC).absolute()


def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["tardigrad", *words])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    return code, *capsys.readouterr()


def test_own_code_runs_and_replays_and_a_change_is_told(
    project: Path,
    pool: ActorPool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_on_ray(tg.Spec.load(project), "real", pool=pool)
    assert load_file("real/params.safetensors").keys() == {"weight", "bias"}
    code, out, err = cli(monkeypatch, capsys, "replay", "real")
    assert code == 0, err
    assert "identical bit for bit" in out
    assert tg.replay("real").difference is None
    net = project.parent / "lib/own_net.py"
    net.write_text(HELPER.replace("pass", "more = 1"))
    code, _, err = cli(monkeypatch, capsys, "replay", "real")
    assert code == 2
    assert "other code (own_net.py has changed)" in err
    assert "--force" in err
    assert cli(monkeypatch, capsys, "replay", "real", "--force")[0] == 0
    mine = project.parent / "lib/mine.py"
    mine.write_text(RULE.replace("push.grad / ", "2 * push.grad / "))
    code, _, err = cli(monkeypatch, capsys, "replay", "real", "--force")
    assert code == 1
    assert "differs from the recorded run at version" in err


@pytest.fixture
def warm(pool: ActorPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find actors that have started: test_command_line has a run that starts its own."""
    monkeypatch.setattr("tardigrad.runtime.run_actors.pool_of", lambda *_: nullcontext(pool))


def test_a_rule_of_ones_own_is_run_extended_and_replayed_from_the_command_line(
    project: Path,
    warm: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("run", str(project), "--on", "ray", "--out", "real")
    code, out, err = cli(monkeypatch, capsys, *words)
    assert code == 0, err
    assert "everything is in real" in out
    before = RunFolder.open(Path("real")).metrics()
    code, _, err = cli(monkeypatch, capsys, *words, "updates=50", "--resume")
    assert code == 0, err
    folder = RunFolder.open(Path("real"))
    assert folder.summary()["updates"] == folder.spec()["updates"] == 50
    assert folder.metrics()[: len(before)] == before
    code, out, err = cli(monkeypatch, capsys, "replay", "real")
    assert code == 0, err
    assert "identical bit for bit" in out


def test_a_stopped_run_goes_on_with_the_code_it_began_with(project: Path, pool: ActorPool) -> None:
    spec = tg.Spec.load(project, ["updates=60"])

    def stop(live: Live) -> None:
        if min(shard.version for shard in live.shards) >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_on_ray(spec, "real", impose=True, watch=stop, pool=pool)
    mine = project.parent / "lib/mine.py"
    mine.write_text(RULE + "\n# another\n")
    with pytest.raises(ValueError, match=r"other code \(mine.py has changed\).*new folder"):
        run_on_ray(spec, "real", resume=True, impose=True, pool=pool)
    mine.write_text(RULE)
    done = run_on_ray(spec, "real", resume=True, impose=True, pool=pool)
    assert done.schedule.updates == 60
    assert tg.replay("real").difference is None


class Locked:
    """A loss that holds what no other process can be given."""

    def __init__(self) -> None:
        self.held = {"guards": [threading.Lock()]}

    def __call__(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


def data() -> Any:
    inputs = torch.linspace(-1, 1, 8).reshape(-1, 1)
    return tg.tasks.Data(tg.tasks.Split(inputs, inputs))


def test_what_cannot_be_sent_is_named_before_anything_starts() -> None:
    task = tg.ModuleTask(nn.Linear(1, 1), Locked(), data(), 4)
    told = r"task\..*held\['guards'\]\[0\] is a lock, which cannot be sent .*pickle '_thread.lock'"
    with pytest.raises(ValueError, match=told):
        tg.train(task, tg.rules.sgd(0.1), workers=1, updates=2)


def test_a_function_that_holds_what_cannot_be_sent_is_named() -> None:
    guard = threading.Lock()

    def grad(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        with guard:
            return view

    told = r"task\.\w+ → guard is a lock, which cannot be sent"
    with pytest.raises(ValueError, match=told):
        check_sendable(task=tg.FunctionTask(torch.ones(2), grad))


def test_runs_in_two_threads_may_end_in_any_order(tmp_path: Path) -> None:
    """The code of the one that goes on still travels."""
    (tmp_path / "own_rule_of_threads.py").write_text("def rule():\n    return None\n")
    name = own_name(f"{tmp_path / 'own_rule_of_threads.py'}:rule")
    assert name is not None
    factory(name, "rule")
    first, second = own_code_sent(), own_code_sent()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    modules = [module.__name__ for module in own_modules()]
    assert modules
    assert set(modules) <= set(cloudpickle.list_registry_pickle_by_value())
    second.__exit__(None, None, None)
    assert not set(modules) & set(cloudpickle.list_registry_pickle_by_value())
