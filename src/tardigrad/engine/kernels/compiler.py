"""C++ compiled for this machine, once, and kept for later runs."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from tardigrad.engine.unsuited import Unsuited

FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
"""Under trapping maths g++ keeps a clamp as a branch, and without AVX-512 (whose masks hide it) a
loop with a branch is not vectorised. Neither flag changes a result: they give up errno and the
floating-point exception flags, which nobody reads."""
ALWAYS_FUSE = "--param=avoid-fma-max-bits=0"
"""For some processors g++ multiplies and adds in two steps where only one sum is under way, and
rounds twice: then a number's bits would depend on the tile that it lies in. Clang knows no such
flag, and does not do that."""


def find_compiler() -> str | None:
    return shutil.which("g++") or shutil.which("c++")


def flags_for(compiler: str) -> list[str]:
    """Clang, which some systems call g++, is told what it knows."""
    told = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    return [*FLAGS, *([] if "clang" in told else [ALWAYS_FUSE])]


@cache
def shared_library(source: str) -> ctypes.CDLL:
    """Compile, or take what an earlier run compiled from the same source for this machine."""
    compiler = find_compiler()
    if compiler is None:
        raise Unsuited("there is no C++ compiler (g++)", "compiler")
    target = subprocess.run(
        [compiler, "-march=native", "-Q", "--help=target"], capture_output=True, text=True
    ).stdout
    flags = flags_for(compiler)
    name = hashlib.sha256(
        "\n".join([source, *flags, *_threads(), compiler, target]).encode()
    ).hexdigest()
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        library = Path(base) / "tardigrad" / "kernels" / f"{name[:32]}.so"
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            _compile(compiler, flags, source, library)
    except (OSError, RuntimeError) as error:  # the latter: there is no home
        why = f"there is no place for compiled code ({error}): set XDG_CACHE_HOME to a folder"
        raise Unsuited(why, "compiler") from error
    return ctypes.CDLL(str(library))


def _compile(compiler: str, flags: Sequence[str], source: str, library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        code, middle, built = (Path(scratch) / f"kernel.{end}" for end in ("cpp", "o", "so"))
        code.write_text(source)
        for arguments in (
            [*flags, "-c", str(code), "-o", str(middle)],
            ["-shared", str(middle), *_threads(), "-o", str(built)],
        ):
            result = subprocess.run([compiler, *arguments], capture_output=True, text=True)
            if result.returncode:
                why = f"{compiler} failed: {result.stderr.strip()[:500]}"
                raise Unsuited(why, "compiler")
        os.replace(built, library)


def _threads() -> list[str]:
    """What to link for OpenMP: torch's own library where it brings one, because two of them have
    two sets of threads, which wait for each other's cores."""
    beside = Path(torch.__file__).parent
    found = sorted([*beside.glob("lib/libgomp*.so*"), *beside.parent.glob("torch.libs/libgomp*")])
    return [str(found[0])] if found else ["-fopenmp"]
