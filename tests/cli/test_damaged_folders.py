"""What commands say of a run's folder in which a file is damaged, or cannot be written."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tardigrad.engine.checkpoint import save_checkpoint
from tests.cli.command_line import Cli

REPLAY, REPORT = ("replay", "r"), ("report", "r")
RESUME = ("run", "small.toml", "updates=20", "--out", "r", "--resume")


@pytest.mark.parametrize(
    ("file", "text", "command", "told"),
    [
        ("spec.toml", "", REPLAY, "it does not say its updates, task, rule"),
        ("spec.toml", "", REPORT, "it does not say its updates, task, rule"),
        ("spec.toml", "", RESUME, "it does not say its updates, task, rule"),
        ("spec.toml", "rule", REPLAY, "Expected"),
        ("spec.toml", "rule", RESUME, "Expected"),
        ("spec.toml", "updates = 'ä'", REPORT, "codec"),
        ("summary.json", "", REPLAY, "Expecting value"),
        ("summary.json", "[]", REPORT, "it holds no table"),
        ("losses.csv", "", REPLAY, "it has no header"),
        ("losses.csv", "loss\nlow\n", REPORT, "could not convert"),
        ("record.json", "{", REPLAY, "Expecting property name"),
    ],
)
def test_a_damaged_file_is_named(
    cli: Cli, file: str, text: str, command: tuple[str, ...], told: str
) -> None:
    assert cli("run", "small.toml", "updates=20", "--out", "r").code == 0
    Path("r", file).write_text(text, encoding="latin-1")
    said = cli(*command)
    assert said.code == 2
    *_, last = said.err.splitlines()
    assert last.startswith(f"error: r/{file} is damaged: ")
    assert told in last


def test_a_folder_that_is_only_read_is_told_before_a_replay_that_saves(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("run", "small.toml", "updates=20", "--out", "r")

    def readable(path: Any, mode: int) -> bool:
        return mode != os.W_OK

    monkeypatch.setattr(os, "access", readable)
    said = cli("replay", "r", "--until", "5")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "error: r cannot be written to, and --until saves a checkpoint there" in said.err
    assert cli("replay", "r").code == 0


def test_a_checkpoint_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "c.safetensors.partial").mkdir()
    with pytest.raises(OSError, match=r"c.safetensors cannot be written: "):
        save_checkpoint(tmp_path / "c.safetensors", {"theta": torch.ones(2)}, {})
