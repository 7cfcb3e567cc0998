"""One Ray and one crew of actors for all tests: a start takes seconds."""

import os
from pathlib import Path

import pytest
import torch

# Actors must find the package, and these tests, where this process finds them.
HERE = Path(__file__).parent
PATHS = [str(HERE.parents[1] / "src"), str(HERE), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, PATHS))


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
