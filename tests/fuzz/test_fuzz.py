"""Random experiments, one a seed: policies × clusters × networks × absences × shards × links ×
rules × tasks. `python -m pytest tests/fuzz -k seed0017` runs one; a failure prints it as Python."""

from pathlib import Path

import pytest

from tests.fuzz.fuzz_case import draw_case
from tests.fuzz.fuzz_checks import check_case, cover

SAMPLE, STRESS = 40, 2000


def seeds() -> list[object]:
    return [
        pytest.param(seed, id=f"seed{seed:04d}", marks=[pytest.mark.stress] * (seed >= SAMPLE))
        for seed in range(SAMPLE + STRESS)
    ]


@pytest.mark.parametrize("seed", seeds())
def test_a_random_experiment(seed: int, tmp_path: Path) -> None:
    case = draw_case(seed)
    try:
        cover(case, check_case(case, tmp_path))
    except BaseException:
        print(case.text())
        raise
