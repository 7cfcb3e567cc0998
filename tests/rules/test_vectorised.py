"""What the compiler makes of each rule's window kernel: a loop left scalar is a failure.

Compiled for AVX2, which has no masks: what is vectorised there is with AVX-512 too, and not the
other way round. A machine of another kind compiles for itself.
"""

import platform
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tardigrad.engine.kernels import trace
from tardigrad.engine.kernels.compiler import FLAGS
from tardigrad.engine.kernels.cpp import window_source
from tests.rules.rule_table import ELEMENTWISE, TABLE

COMPILER = shutil.which("g++")
TARGET = "-march=x86-64-v3" if platform.machine() == "x86_64" else "-march=native"
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")


def left_scalar(source: str, folder: Path, flags: tuple[str, ...] = FLAGS) -> list[str]:
    """The loops over elements of which the compiler does not say that it vectorised them."""
    code = folder / "window.cpp"
    code.write_text(source)
    command = [str(COMPILER), *flags, TARGET, "-c", "-fopt-info-vec-optimized", code.name]
    told = subprocess.run(
        [*command, "-o", "window.o"], cwd=folder, capture_output=True, text=True, check=True
    ).stderr
    said = re.findall(r"window\.cpp:(\d+):\d+: optimized: loop vectorized", told)
    found = {int(line) for line in said}
    lines = source.splitlines()
    loops = [at for at, line in enumerate(lines, 1) if "for (long i = 0;" in line]
    assert len(loops) >= 2  # the update, whether θ is finite
    # The compiler names the loop's line, the pragma's before it, or one inside the loop.
    spans = [range(a - 1, b - 1) for a, b in pairwise([*loops, len(lines)])]
    return [lines[span[1] - 1] for span in spans if found.isdisjoint(span)]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_the_loop_over_elements_is_vectorised(name: str, tmp_path: Path) -> None:
    source = window_source(trace(TABLE[name], torch.float32), torch.float32)
    assert not left_scalar(source, tmp_path)


@pytest.mark.parametrize("name", ["fasgd", "gap_aware", "dana_ga", "adam_ga"])
def test_in_float64_too(name: str, tmp_path: Path) -> None:
    source = window_source(trace(TABLE[name], torch.float64), torch.float64)
    assert not left_scalar(source, tmp_path)


def test_the_check_sees_a_loop_left_scalar(tmp_path: Path) -> None:
    source = window_source(trace(TABLE["fasgd"], torch.float32), torch.float32)
    assert len(left_scalar(source.replace("std::sqrt", "std::cbrt"), tmp_path)) == 1
