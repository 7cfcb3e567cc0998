"""Runs under faults that seeds draw: all updates made, nothing acknowledged lost, nothing twice."""

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.scenarios import draw, run
from tests.simulation.simulate import find, tell

BLOCK = 50


@pytest.mark.parametrize("first", range(0, 500, BLOCK))
def test_runs_complete_whatever_fails(first: int) -> None:
    for seed in range(first, first + BLOCK):
        outcome = run(draw(seed))
        assert not outcome.error, tell(outcome)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("safeguard", MUTATIONS)
def test_the_simulation_finds_a_safeguard_that_is_missing(safeguard: str) -> None:
    assert find(safeguard, most=3000), safeguard
