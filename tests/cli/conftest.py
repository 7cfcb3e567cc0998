"""The command line as a user meets it, in this process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

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
