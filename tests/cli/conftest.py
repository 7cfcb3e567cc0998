"""The command line as a user meets it, in this process."""

import sys
from pathlib import Path

import pytest

from tardigrad.cli import main
from tests.cli.command_line import SMALL, Cli, Said


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
