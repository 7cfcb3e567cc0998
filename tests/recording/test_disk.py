"""A folder keeps what `Disk` promises."""

import os
from pathlib import Path
from typing import Any

import pytest

from tardigrad.recording.disk import FolderDisk


def test_of_two_that_create_a_file_at_once_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where their processes have the same number, on two machines."""
    link = os.link

    def late(partial: Any, path: Any) -> None:
        monkeypatch.setattr(os, "link", link)
        assert FolderDisk(tmp_path).create("epochs/1", b"other")
        link(partial, path)

    monkeypatch.setattr(os, "link", late)
    disk = FolderDisk(tmp_path)
    assert not disk.create("epochs/1", b"mine")
    assert disk.read("epochs/1") == b"other"
    assert disk.names("") == ["epochs/1"]


def test_the_name_of_a_new_log_survives_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To sync a file does not sync the folder that it is named in."""
    synced: list[str] = []
    fsync = os.fsync

    def look(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(os, "fsync", look)
    disk = FolderDisk(tmp_path)
    disk.append("logs/shard-0.log", b"line\n")
    disk.append("logs/shard-0.log", b"line\n")
    disk.close()
    assert synced == [str(tmp_path), str(tmp_path / "logs")]
