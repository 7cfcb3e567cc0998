"""One Ray and one crew of actors for all tests: a start takes seconds."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
# Actors must find the package where the tests found it.
SOURCE = Path(__file__).parents[2] / "src"
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
)


@pytest.fixture(scope="session")
def ray_here():
    from tardigrad.runtime import local

    with local(actors=8):
        yield


@pytest.fixture(scope="session")
def crew(ray_here):
    from tardigrad.runtime import Crew

    with Crew() as crew:
        yield crew


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
