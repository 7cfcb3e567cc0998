"""What a command said, a small experiment, and the command line as a program of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tardigrad


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
