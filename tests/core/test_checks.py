"""Numbers that no computer can hold are refused by name, in a line."""

from collections.abc import Callable

import pytest

import tardigrad as tg
from tardigrad.core.checks import count, number
from tardigrad.experiment.spec import STRUCTURE

HUGE = 10**400


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: number("lr", HUGE), "lr"),
        (lambda: number("lr", -HUGE), "lr"),
        (lambda: count("updates", 10**5000), "updates"),  # more digits than Python writes
        (lambda: tg.rules.sgd(HUGE), "lr"),
        (lambda: tg.Absence(0, 1.0, HUGE), "returns_s"),
        (lambda: tg.schedule(cluster=tg.Gamma(workers=2), updates=HUGE), "updates"),
        (lambda: STRUCTURE.value("rule.lr", HUGE, float), "rule.lr"),
    ],
)
def test_huge_whole_numbers_are_refused(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is too large: it has about \d+00 digits"):
        make()


def test_what_is_no_number_is_told_as_it_was_given() -> None:
    assert number("lr", 10**20) == 1e20
    for wrong in (True, "1", None, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="lr must be a finite number, got "):
            number("lr", wrong)
