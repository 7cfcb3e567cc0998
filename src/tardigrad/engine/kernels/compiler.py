"""C++ compiled for this machine, once, and kept for later runs."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from tardigrad.engine.unsuited import Unsuited

FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-c")
"""Under trapping maths g++ keeps a clamp as a branch, and without AVX-512 (whose masks hide it) a
loop with a branch is not vectorised. Neither flag changes a result: they give up errno and the
floating-point exception flags, which nobody reads."""


def find_compiler() -> str | None:
    return shutil.which("g++") or shutil.which("c++")


@cache
def shared_library(source: str) -> ctypes.CDLL:
    """Compile, or take what an earlier run compiled from the same source for this machine."""
    compiler = find_compiler()
    if compiler is None:
        raise Unsuited("there is no C++ compiler (g++)", "compiler")
    target = subprocess.run(
        [compiler, "-march=native", "-Q", "--help=target"], capture_output=True, text=True
    ).stdout
    name = hashlib.sha256(
        "\n".join([source, *FLAGS, *_threads(), compiler, target]).encode()
    ).hexdigest()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "tardigrad" / "kernels"
    library = folder / f"{name[:32]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            code, middle, built = (Path(scratch) / f"kernel.{end}" for end in ("cpp", "o", "so"))
            code.write_text(source)
            for arguments in (
                [*FLAGS, str(code), "-o", str(middle)],
                ["-shared", str(middle), *_threads(), "-o", str(built)],
            ):
                result = subprocess.run([compiler, *arguments], capture_output=True, text=True)
                if result.returncode:
                    why = f"{compiler} failed: {result.stderr.strip()[:500]}"
                    raise Unsuited(why, "compiler")
            os.replace(built, library)
    return ctypes.CDLL(str(library))


def _threads() -> list[str]:
    """What to link for OpenMP: torch's own library where it brings one, because two of them have
    two sets of threads, which wait for each other's cores."""
    beside = Path(torch.__file__).parent
    found = sorted([*beside.glob("lib/libgomp*.so*"), *beside.parent.glob("torch.libs/libgomp*")])
    return [str(found[0])] if found else ["-fopenmp"]
