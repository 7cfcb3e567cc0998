"""`tardigrad doctor`: what is here, and what that means."""

import importlib.util
import shutil
from typing import Any

import pytest
import torch

import tardigrad as tg
from tests.cli.command_line import Cli


def test_it_tells_what_is_here(cli: Cli) -> None:
    said = cli("doctor")
    assert said.code == 0
    for found in (tg.__version__, torch.__version__, torch.backends.cpu.get_cpu_capability()):
        assert found in said.out
    assert "engine = fast works on the CPU" in said.out


def test_it_tells_what_is_missing_and_what_to_type(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec

    def gone(name: str, package: str | None = None) -> Any:
        return None if name in ("ray", "wandb") else there(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", gone)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    said = cli("doctor")
    assert said.code == 0
    assert "runs take the exact engine, which is slower; install g++" in said.out
    assert "pip install 'tardigrad[ray]'" in said.out
    assert "pip install 'tardigrad[wandb]'" in said.out


def test_a_compiler_that_does_not_run_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/no/such/compiler")
    said = cli("doctor")
    assert said.code == 0
    assert "it does not run" in said.out
