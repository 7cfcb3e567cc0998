"""`tardigrad doctor`."""

import importlib.util
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import torch

from tardigrad.cli.console import out
from tardigrad.core.computer import processor
from tardigrad.core.text_table import TextTable
from tardigrad.core.version import __version__
from tardigrad.engine.kernels.compiler import find_compiler
from tardigrad.experiment.loggers import LOGGERS
from tardigrad.transport.arena import can_share_memory


class Found(NamedTuple):
    what: str
    here: str
    means: str


def doctor() -> None:
    """Say what is here (compiler, processor, torch, GPU, Ray), and what that means for you."""
    rows = [*_machine(), _compiler(), _gpu(), _ray(), _shared_memory(), _loggers()]
    out.print(TextTable(("what", "here", "what that means"), rows))


def _machine() -> list[Found]:
    cores = os.cpu_count() or 1
    threads = torch.get_num_threads()
    vectors = torch.backends.cpu.get_cpu_capability()
    return [
        Found("tardigrad", __version__, f"Python {platform.python_version()}"),
        Found("torch", torch.__version__, f"{threads} threads a simulation, on {cores} cores"),
        Found(
            "processor",
            f"{processor()}, {platform.machine()}, {vectors}",
            "runs repeat to the bit on machines that say the same here; others differ in rounding",
        ),
    ]


def _compiler() -> Found:
    compiler = find_compiler()
    if compiler is None:
        means = "engine = fast needs one on the CPU: runs take the exact engine, which is slower"
        return Found("C++ compiler", "none", f"{means}; install g++")
    try:
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return Found("C++ compiler", compiler, f"it does not run ({error}): install g++")
    return Found("C++ compiler", said.stdout.partition("\n")[0], "engine = fast works on the CPU")


def _gpu() -> Found:
    if not torch.cuda.is_available():
        means = 'device = "cuda" is refused; everything else works on the CPU'
        return Found("GPU", "none that torch can use", means)
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    triton = importlib.util.find_spec("triton") is not None
    means = "engine = fast captures graphs there" if triton else "without triton, exact only"
    return Found("GPU", ", ".join(names), f'device = "cuda" works; {means}')


def _ray() -> Found:
    found = _installed("ray")
    if found is None:
        means = "tardigrad run --on ray and tg.train need it: pip install 'tardigrad[ray]'"
        return Found("Ray", "not installed", f"{means}; simulations and replays do not")
    return Found("Ray", found, "tardigrad run --on ray and tg.train work")


def _shared_memory() -> Found:
    if can_share_memory():
        return Found("shared memory", "yes", "on Ray, numbers on one machine are not sent")
    return Found("shared memory", "no", "on Ray, all numbers go through sockets, which is slower")


def _loggers() -> Found:
    here = {name: found for name in LOGGERS if (found := _installed(name))}
    missing = [name for name in LOGGERS if name not in here]
    means = f"pip install 'tardigrad[{missing[0]}]' adds one" if missing else "all can be used"
    text = ", ".join(f"{name} {found}" for name, found in here.items())
    return Found("loggers", text or "metrics.jsonl alone", f"[log] in a spec; {means}")


def _installed(package: str) -> str | None:
    """Its version; None where it is not there. It is not imported."""
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
