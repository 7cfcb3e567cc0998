"""What cannot work is refused with a reason, before anything runs."""

from typing import Any

import pytest

import tardigrad as tg
from tests.fuzz.fuzz_checks import uncompiled
from tests.fuzz.fuzz_draws import Draws
from tests.fuzz.fuzz_wrong import WRONG, sound, start


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_with_a_reason(name: str) -> None:
    for seed in range(8):
        ticks: list[Any] = []
        with uncompiled(), pytest.raises(ValueError, match=r"\w{2,}.* .*\w{2,}") as refused:
            start(name, seed, ticks.append)
        assert type(refused.value) is ValueError
        assert not ticks, f"refused after {len(ticks)} updates: {refused.value}"


def test_what_they_differ_from_runs() -> None:
    for seed in range(8):
        parts = sound(Draws(seed, "sound"))
        assert tg.simulate(**parts).schedule.updates == parts["updates"]
