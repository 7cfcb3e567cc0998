"""What made a result: machine, versions, command, commit."""

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tardigrad.core import checks
from tardigrad.core.version import __version__

PACKAGE = Path(checks.__file__).parents[1]


def made_by(device: str, command: str) -> dict[str, Any]:
    """As plain data, the same for all cells of a call."""
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": _machine(device),
        "versions": {
            "tardigrad": __version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "commit": _commit(),
        "code": _digest(),
    }


def _machine(device: str) -> str:
    host = f"{platform.machine()}, {os.cpu_count()} cores"
    if device.startswith("cuda"):
        return f"{torch.cuda.get_device_name(device)}; {host}"
    return host


def _commit() -> str | None:
    """Of the clone that the package is in; None where it is installed, or git is missing."""
    try:
        at, changed = (
            subprocess.run(
                ["git", *words], cwd=PACKAGE, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", str(PACKAGE)))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{at} with changes" if changed else at


def _digest() -> str:
    """Of the package's files, which tells what ran where no commit does."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]
