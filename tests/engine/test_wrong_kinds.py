"""A name, a class or a number where an object belongs is refused at every front door."""

from collections.abc import Callable
from typing import Any

import pytest

import tardigrad as tg
from tardigrad.tasks import quadratic

anything: Any = tg  # calls that a type checker would refuse
TASK, RULE, CLUSTER = quadratic(dimension=4), tg.rules.sgd(0.1), tg.Gamma(workers=2)
PARTS: list[tuple[dict[str, Any], str]] = [
    ({"policy": "async"}, r"policy must be a tg\.Policy such as tg\.Sync\(\), got 'async'"),
    ({"policy": tg.Async}, r"policy must be .* got the class Async: write Async\(…\)"),
    ({"cluster": "gamma"}, r"cluster must be a cluster such as tg\.Gamma.* got 'gamma'"),
    ({"link": "full"}, r"link must be a tg\.Link such as tg\.Full\(codec=.* got 'full'"),
    ({"link": tg.Sign()}, r"link must be a tg\.Link such as tg\.Full\(codec=.* got Sign"),
]
OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"stop": 0.3}, r"stop must be a tg\.Stop such as tg\.Stop\(loss=0\.5\), got 0\.3"),
    ({"checkpoints": "x"}, r"checkpoints must be a tg\.Checkpoints such as .* got 'x'"),
    ({"limits": 4}, r"limits must be a tg\.Limits such as .* got 4"),
]


def refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("given", "message"), [*PARTS, *OPTIONS])
def test_in_simulate_and_compare(given: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {"cluster": CLUSTER, "updates": 5} | given
    refused(lambda: tg.simulate(TASK, RULE, **asked), message)
    if "checkpoints" not in given:
        refused(lambda: tg.compare(TASK, {"a": RULE}, **asked), message)


@pytest.mark.parametrize(("given", "message"), PARTS)
def test_in_schedule(given: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {"cluster": CLUSTER, "updates": 5} | given
    refused(lambda: tg.schedule(**asked), message)


@pytest.mark.parametrize(("given", "message"), OPTIONS)
def test_in_execute(given: dict[str, Any], message: str) -> None:
    made = tg.schedule(cluster=CLUSTER, updates=5)
    refused(lambda: tg.execute(made, TASK, RULE, **given), message)


TRAINED = [one for one in [*PARTS, *OPTIONS] if not {"cluster", "limits"} & {*one[0]}]


@pytest.mark.parametrize(("given", "message"), TRAINED)
def test_in_train(given: dict[str, Any], message: str) -> None:
    refused(lambda: tg.train(TASK, RULE, **given), message)


@pytest.mark.parametrize("door", ["simulate", "train"])
@pytest.mark.parametrize(
    ("task", "rule", "message"),
    [
        (None, RULE, r"task must be a tg\.Task such as tg\.ModuleTask\(.* got None"),
        (tg.ModuleTask, RULE, "got the class ModuleTask"),
        (TASK, "sgd", r"rule must be a tg\.Rule such as tg\.rules\.sgd\(0\.1\), got 'sgd'"),
    ],
)
def test_what_is_learned_and_how(door: str, task: Any, rule: Any, message: str) -> None:
    refused(lambda: getattr(tg, door)(task, rule), message)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: anything.DyLU("async"), r"policy must be a tg\.Policy .* got 'async'"),
        (lambda: anything.RampUp(tg.Sync, 5), "got the class Sync"),
        (lambda: anything.PartialPull(None, pull=0.5), "policy must be .* got None"),
        (lambda: anything.Run.load(5), "folder must be the path of a run's folder .* got 5"),
        (lambda: anything.plan(5), "where must be the path of a log .* got 5"),
        (lambda: anything.plan(CLUSTER, spec=5), r"spec must be a tg\.Spec or the path .* got 5"),
        (lambda: anything.sweep(5, {}), r"experiment must be a tg\.Spec or the path .* got 5"),
    ],
)
def test_around_policies_and_at_other_doors(make: Callable[[], object], message: str) -> None:
    refused(make, message)
