"""The command line as a user meets it, in this process."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tardigrad
from tardigrad.cli import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Said]

SMALL = """
updates = 60
[task]
name = "logistic_regression"
train_size = 200
validation = 50
[rule]
name = "sgd"
lr = 0.05
[cluster]
name = "gamma"
workers = 4
"""


# A shell starts background jobs with SIGINT ignored, and processes hand that on: without this a
# suite that is such a job would start programs which Ctrl-C cannot stop.
_HEEDING_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "tardigrad", *sys.argv[1:]])
"""


def started(folder: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    """This very code as a program of its own, as if from a terminal, in a folder."""
    return subprocess.Popen(
        [sys.executable, "-c", _HEEDING_CTRL_C, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(tardigrad.__file__).parents[1])},
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in an empty folder that holds small.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "small.toml").write_text(SMALL)

    def run(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["tardigrad", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Said(code, *capsys.readouterr())

    return run
