"""Random experiments, one a seed: policies × clusters × networks × absences × shards × links ×
codecs × rules × works × tasks. `python -m pytest tests/fuzz -k seed0017` runs one; a failure prints
it as Python."""

from pathlib import Path

import pytest

from tardigrad.links import CODECS, LINKS
from tardigrad.policies import POLICIES
from tests.fuzz.fuzz_case import draw_case
from tests.fuzz.fuzz_checks import check_case, cover, kinds
from tests.fuzz.fuzz_rules import NAMES
from tests.fuzz.fuzz_works import INNER

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


def test_every_part_is_drawn() -> None:
    """What is new elsewhere is to be drawn here too."""
    cases = map(draw_case, range(600))
    drawn = {name for case in cases for names in kinds(case).values() for name in names}
    wanted = {part.__name__ for part in (*POLICIES.values(), *LINKS.values(), *CODECS.values())}
    wanted |= {*NAMES, *(f"local {inner}" for inner in INNER), "micro-batches", "heavy ball"}
    assert not wanted - drawn
