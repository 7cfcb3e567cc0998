"""A run's files, behind an interface of seven functions, so that a simulated disk can fail."""

import os
import secrets
import shutil
from pathlib import Path
from typing import Protocol

LATE = ("nfs", "cifs", "smb", "fuse.sshfs")
"""File systems, by how their names begin, whose other machines see writes late."""


class Disk(Protocol):
    """Names are relative, with `/` between folders."""

    def append(self, name: str, data: bytes) -> None:
        """All of it. Where that fails, a part of it may be there, and the caller writes no more."""

    def sync(self, name: str) -> None:
        """What stands in a file survives loss of power, and other machines see it."""

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""

    def create(self, name: str, data: bytes) -> bool:
        """A new file, synced; False where there is one. Of two that try, one succeeds."""

    def replace(self, name: str, data: bytes) -> None:
        """A whole file, synced, in the place of the old one or none."""

    def names(self, prefix: str) -> list[str]:
        """Files that begin so, sorted."""

    def remove(self, prefix: str) -> None:
        """Files that begin so."""


class FolderDisk:
    """A folder; on a cluster, one that all nodes see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, int] = {}

    def append(self, name: str, data: bytes) -> None:
        file = self._open.get(name)
        if file is None:
            path = self._path(name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            file = self._open[name] = os.open(path, flags, 0o644)
            self._sync_folder(path.parent)  # a file is synced without its name
        written = os.write(file, data)
        if written != len(data):
            raise OSError(f"{self.folder / name}: only {written} of {len(data)} bytes were written")

    def sync(self, name: str) -> None:
        file = self._open.get(name)
        if file is not None:
            os.fdatasync(file)
            return
        file = os.open(self.folder / name, os.O_RDONLY)
        try:
            os.fdatasync(file)
        finally:
            os.close(file)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        """Written beside and linked to its name, so that it is never seen empty."""
        path = self._path(name)
        partial = _beside(path)
        self._write(partial, data)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        finally:
            partial.unlink()
        self._sync_folder(path.parent)
        return True

    def replace(self, name: str, data: bytes) -> None:
        path = self._path(name)
        partial = _beside(path)
        self._write(partial, data)
        os.replace(partial, path)
        self._sync_folder(path.parent)

    def names(self, prefix: str) -> list[str]:
        found = (p for p in self.folder.rglob("*") if p.is_file() and p.suffix != ".partial")
        names = (path.relative_to(self.folder).as_posix() for path in found)
        return sorted(name for name in names if name.startswith(prefix))

    def remove(self, prefix: str) -> None:
        whole = self.folder / prefix
        if whole.is_dir():
            shutil.rmtree(whole)
            return
        for name in self.names(prefix):
            (self.folder / name).unlink()

    def close(self) -> None:
        for file in self._open.values():
            os.close(file)
        self._open = {}

    def _path(self, name: str) -> Path:
        path = self.folder / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sync_folder(path.parent.parent)
        return path

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _beside(path: Path) -> Path:
    """A name that no other process has, on this machine or another."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")


def file_system(folder: Path) -> str:
    """The kind of file system that a folder is on; "" where that cannot be known."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    path, found, longest = folder.resolve(), "", -1
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        mounted = Path(place.replace("\\040", " "))
        if path.is_relative_to(mounted) and len(mounted.parts) >= longest:
            found, longest = kind, len(mounted.parts)
    return found
