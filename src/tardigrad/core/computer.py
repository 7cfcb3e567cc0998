"""Which computer this is, as far as the bits of a run depend on it."""

import platform
from functools import cache
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")
MODELS = (("vendor_id", "cpu family", "model"), ("CPU implementer", "CPU variant", "CPU part"))
"""How it is told on x86 and on ARM."""


@cache
def processor(cpuinfo: Path = CPUINFO) -> str:
    """Its maker and model, such as "GenuineIntel 6/143", as far as the system tells.

    Libraries choose how they compute products by these, too: two processors that have the same
    vector instructions may round differently.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    for maker, *model in MODELS:
        if maker in found:
            return f"{found[maker]} {'/'.join(found.get(name, '?') for name in model)}"
    return platform.processor() or platform.machine()


def computer() -> str:
    """In one line; where two say the same, a run has the same bits on both."""
    vectors = torch.backends.cpu.get_cpu_capability()
    return f"{processor()}, {platform.machine()}, {vectors}, torch {torch.__version__}"
