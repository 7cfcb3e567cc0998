"""Learning rates against their formulas, and the largest rate of a whole run."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.used_code import used_code
from tardigrad.rules import rates
from tardigrad.rules.rates import LearningRate, Progress, learning_rate

EVERY: list[LearningRate] = [
    rates.ConstantRate(0.1),
    rates.step(0.1, (10, 30), 0.5),
    rates.step(0.1, (10, 30), 3.0),
    rates.step(0.1, ()),
    rates.linear(0.1, over=40),
    rates.linear(0.1, over=40, final=0.4),
    rates.cosine(0.1, over=40, final=0.01),
    rates.exponential(0.1, decay=0.3, over=20),
    rates.function(lambda update: 0.1 / (1 + update), largest=0.1),
    rates.warm_up(rates.step(0.2, (30,)), workers=8, over=10, by="updates"),
]


def at(rate: LearningRate, updates: int) -> float:
    return rate.at(Progress(updates))


@pytest.mark.parametrize("rate", EVERY, ids=lambda rate: type(rate).__name__)
def test_the_largest_rate_is_reached_and_never_passed(rate: LearningRate) -> None:
    values = [at(rate, k) for k in range(60)]
    assert max(values) == pytest.approx(rate.max, rel=1e-12)
    assert min(values) >= 0


def halving(update: int) -> float:
    return float(0.1 * 0.5 ** (update // 10))


@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_a_function_of_ones_own_is_a_rate(engine: Any) -> None:
    """The updates that are handed to it count from 0."""
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=3), 40)
    task = tg.FunctionTask(torch.ones(5), lambda view, worker, step: view + 0.1 * worker)
    milestones = rates.step(0.1, (10, 20, 30), 0.5)
    mine, known = (
        tg.execute(schedule, task, rules.sgd(lr, 0.9), engine=engine).params
        for lr in (halving, milestones)
    )
    assert torch.equal(mine, known)


def test_the_code_of_a_function_is_recorded_with_the_run() -> None:
    here = Path(__file__).name
    names = used_code(rules.sgd(lr=lambda update: 0.1 / (1 + update)))
    assert any(name.endswith(here) for name in names)
    assert not any(name.endswith(here) for name in used_code(rules.sgd(0.1)))


def test_a_function_does_not_tell_its_largest_rate() -> None:
    with pytest.raises(ValueError, match=r"Gap needs the largest rate .*rates.function\("):
        rules.gap_aware(halving)
    rules.gap_aware(halving, max_lr=0.1)
    rules.gap_aware(rates.function(halving, largest=0.1))


WRONG: dict[str, tuple[Any, str]] = {
    "nothing": (lambda update: None, r"what lr\(0\) returns must be a finite number, got None"),
    "negative": (lambda update: -1.0, r"what lr\(0\) returns must not be negative"),
    "no argument": (lambda: 0.1, r"lr\(0\) failed .* number of updates made so far"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_function_that_gives_no_rate_is_refused(name: str) -> None:
    function, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        rules.sgd(function)


def test_step_counts_milestones_passed() -> None:
    rate = rates.step(1.0, (2, 5), 0.1)
    assert [at(rate, k) for k in range(6)] == pytest.approx([1, 1, 0.1, 0.1, 0.1, 0.01])


def test_linear() -> None:
    rate = rates.linear(1.0, over=4, final=0.2)
    assert [at(rate, k) for k in range(6)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_a_rate_may_be_held_before_it_falls() -> None:
    rate = rates.linear(1.0, over=2, final=0.2, start=3)
    assert [at(rate, k) for k in range(7)] == pytest.approx([1, 1, 1, 1, 0.6, 0.2, 0.2])
    later = rates.cosine(1.0, over=4, start=2)
    assert [at(later, k) for k in (1, 2, 4, 6)] == pytest.approx([1, 1, 0.5, 0])
    epochs = rates.linear(1.0, over=1, by="epochs", start=1)
    assert epochs.at(Progress(updates=9, samples=90, epoch_size=60)) == pytest.approx(0.5)


def test_cosine() -> None:
    rate = rates.cosine(1.0, over=4)
    half = math.sqrt(0.5)
    expected = [1.0, 0.5 + half / 2, 0.5, 0.5 - half / 2, 0.0, 0.0]
    assert [at(rate, k) for k in range(6)] == pytest.approx(expected)


def test_exponential() -> None:
    rate = rates.exponential(1.0, decay=0.25, over=2)
    assert [at(rate, k) for k in range(4)] == pytest.approx([1, 0.5, 0.25, 0.125])


def test_warm_up_goes_from_a_share_of_one_worker_to_the_whole() -> None:
    rate = rates.warm_up(0.8, workers=4, over=6, by="updates")  # a number will do
    assert [at(rate, k) for k in (0, 3, 6, 7)] == pytest.approx([0.2, 0.5, 0.8, 0.8])


def test_units() -> None:
    """Ten updates of 3 samples each are half an epoch of 60."""
    progress = Progress(updates=10, samples=30, epoch_size=60)
    expected: dict[rates.Unit, float] = {
        "updates": 1.0 - 10 / 40,
        "samples": 1.0 - 30 / 40,
        "epochs": 1.0 - 0.5 / 40,
    }
    for unit, value in expected.items():
        assert rates.linear(1.0, over=40, by=unit).at(progress) == pytest.approx(value)
    with pytest.raises(ValueError, match='no epochs: use by="updates"'):
        rates.linear(1.0, over=40, by="epochs").at(Progress(10, 30))


def test_a_number_becomes_a_constant() -> None:
    assert learning_rate(0.5) == rates.ConstantRate(0.5)
    assert learning_rate(EVERY[1]) is EVERY[1]


unchecked: Any = rates  # calls that a type checker would refuse
BAD = [
    (lambda: learning_rate(0.0), "lr must be greater than 0, got 0.0"),
    (lambda: learning_rate(-1), "lr must be greater than 0, got -1"),
    (lambda: learning_rate(math.nan), "lr must be a finite number, got nan"),
    (lambda: unchecked.learning_rate("fast"), "lr must be a finite number, got 'fast'"),
    (lambda: learning_rate(True), "lr must be a finite number, got True"),
    (lambda: rates.ConstantRate(math.inf), "lr must be a finite number"),
    (lambda: rates.step(0.1, (5, 3)), r"milestones must increase, got \[5, 3\]"),
    (lambda: rates.step(0.1, (5, 5)), "milestones must increase"),
    (lambda: unchecked.step(0.1, ("a",)), r"milestones\[0\] must be a finite number"),
    (lambda: rates.step(0.1, (5,), factor=0.0), "factor must be greater than 0"),
    (lambda: rates.linear(0.1, over=0), "over must be greater than 0"),
    (lambda: rates.linear(0.1, over=5, final=-0.1), "final must not be negative"),
    (lambda: rates.linear(0.1, over=5, start=-1), "start must not be negative"),
    (lambda: unchecked.cosine(0.1, over=5, final="0"), "final must be a finite number"),
    (lambda: unchecked.cosine(0.1, over=5, by="epoch"), "by must be one of.*did you mean 'epochs'"),
    (lambda: unchecked.step(0.1, (5,), by="steps"), "by must be one of"),
    (lambda: rates.exponential(0.1, decay=1.5), r"decay must be in \(0, 1\], got 1.5"),
    (lambda: unchecked.exponential(0.1, decay="x"), "decay must be a finite number"),
    (lambda: rates.warm_up(0.1, workers=0), "workers must be a whole number of at least 1"),
    (lambda: unchecked.warm_up(0.1, workers=2.5), "workers must be a whole number"),
    (lambda: rates.warm_up(-0.1, workers=2), "lr must be greater than 0"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_bad_rate_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
