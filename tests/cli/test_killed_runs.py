"""Runs that are stopped from outside, in processes of their own."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.cli.command_line import started

SPEC = """
updates = 1200
checkpoint_every = 100
evaluate_every = 100
measures = ["gap", "b_staleness"]
[task]
name = "logistic_regression"
sampling = "epoch"
[rule]
name = "gap_aware"
lr = 0.01
ema = 0.99
[cluster]
name = "gamma"
workers = 6
heterogeneous = true
"""


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs of this very code; none outlives the test."""
    (tmp_path / "long.toml").write_text(SPEC)
    running: list[subprocess.Popen[str]] = []

    def begin(out: str, *words: str) -> subprocess.Popen[str]:
        command = ("run", "long.toml", "--out", out, *words)
        process = started(tmp_path, *command, stdout=subprocess.DEVNULL)
        running.append(process)
        return process

    yield begin
    for process in running:
        with process:  # closes its pipes and waits
            process.kill()


def after_a_checkpoint(process: subprocess.Popen[str], folder: Path, sign: int) -> tuple[int, str]:
    """Send a signal once a new checkpoint is there; the exit code and standard error."""
    file = folder / "checkpoint.safetensors"
    before = file.stat().st_mtime_ns if file.exists() else 0
    deadline = time.monotonic() + 120
    while not file.exists() or file.stat().st_mtime_ns == before:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, sign)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


def results(folder: Path) -> tuple[dict[str, bytes], list[dict[str, float]], dict[str, object]]:
    """Everything but wall time; parameters by their bytes."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    summary = json.loads((folder / "summary.json").read_text())
    records = [{k: v for k, v in json.loads(line).items() if k != "wall_s"} for line in lines]
    del summary["wall_s"]
    params = load_file(folder / "params.safetensors")
    return {name: array.tobytes() for name, array in params.items()}, records, summary


def test_stopped_and_killed_runs_end_with_the_bits_of_an_undisturbed_one(
    tmp_path: Path, start: Start
) -> None:
    calm = start("calm")
    folder = tmp_path / "rough"
    code, said = after_a_checkpoint(start("rough"), folder, signal.SIGINT)
    assert code == 130
    assert "stopped by Ctrl-C" in said
    assert "rough holds the checkpoint after update" in said
    assert "tardigrad run long.toml --out rough --resume" in said
    assert json.loads((folder / "summary.json").read_text())["status"] == "stopped"
    code, said = after_a_checkpoint(start("rough", "--resume"), folder, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in said
    code, _ = after_a_checkpoint(start("rough", "--resume"), folder, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (folder / "params.safetensors").exists()
    last = start("rough", "--resume")
    for process in (last, calm):
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    assert results(folder) == results(tmp_path / "calm")
