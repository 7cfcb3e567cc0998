"""Policies around another: what they do not decide themselves is what the inner one says."""

from collections.abc import Callable

import pytest

import tardigrad as tg
from tardigrad.policies import Policy

WRAPPERS: dict[str, Callable[[Policy], Policy]] = {
    "DyLU": tg.DyLU,
    "RampUp": lambda policy: tg.RampUp(policy, updates=5),
    "PartialPull": lambda policy: tg.PartialPull(policy, pull=0.5),
}
INNER = [
    tg.Async(),
    tg.Sync(),
    tg.Ringmaster(4, stop=True),
    tg.Quorum(3, grace_s=1.0),
    tg.Malenia(6),
]
DECIDED = {"PartialPull": {"pulls_all", "extends", "needs_clock"}}
ASKED = [name for name, value in vars(Policy).items() if isinstance(value, property)]


@pytest.mark.parametrize("policy", INNER, ids=repr)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_is_not_decided_is_passed_on(wrapper: str, policy: Policy) -> None:
    try:
        around = WRAPPERS[wrapper](policy)
    except ValueError:
        pytest.skip(f"{wrapper} does not take {policy}")
    for name in set(ASKED) - DECIDED.get(wrapper, set()):
        assert getattr(around, name) == getattr(policy, name), name


def test_an_interrupted_row_does_not_tell_how_fast_its_worker_is() -> None:
    """Workers of 1, 1 and 9 s a step: the slow one is stopped in its first rows."""
    cluster = tg.Constant(3, (1.0, 1.0, 9.0))
    made = tg.schedule(tg.DyLU(tg.Ringmaster(3, stop=True)), cluster, updates=40, batches=4)
    slow = made.worker == 2
    assert made.interrupted[slow].any()
    assert (made.steps[slow] == 4).all()
