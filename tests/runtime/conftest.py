"""One Ray and one pool of actors for all tests: a start takes seconds."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from tests.runtime.spare_pool import SparePool

# Actors must find the package, and these tests, where this process finds them.
ROOT = Path(__file__).parents[2]
PATHS = [str(ROOT / "src"), str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, PATHS))
# What of a stopped process Ray asks to end is ended by force after this, and not after 5 s.
os.environ.update({"RAY_kill_worker_timeout_milliseconds": "500"})


@pytest.fixture(scope="package")
def ray_here() -> Iterator[None]:
    from tardigrad.runtime import local

    with local(actors=8):
        yield


@pytest.fixture(scope="package")
def pool(ray_here: None) -> "Iterator[SparePool]":
    from tests.runtime.spare_pool import SparePool

    with SparePool() as pool:
        yield pool


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
