"""What a rule keeps, for a shard or for each worker: its shape, its type and where it begins."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.engine.kernels import trace
from tardigrad.engine.kernels.starts import own_rows_start_alike
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import (
    Correction,
    Nothing,
    Now,
    Push,
    Sgd,
    Signal,
)
from tests.engine.eager_graphs import eager  # noqa: F401
from tests.engine.scope_rules import (
    LAYOUT,
    LR,
    START,
    run,
    task,
)


class Counted(NamedTuple):
    counted: Tensor


@dataclass(frozen=True)
class Counts(Correction[Counted, Any]):
    """Keeps a number for the shard, one more after each update, or one for each worker."""

    shape: tuple[int, ...] = ()
    per_worker: bool = False
    dtype: torch.dtype | None = None

    def start(self, theta: Tensor, layout: Layout) -> Any:
        size = (len(theta),) if self.shape == (-1,) else self.shape
        kept = torch.ones(size, dtype=self.dtype or theta.dtype)
        return Nothing() if self.per_worker else Counted(kept)

    def start_own(self, theta: Tensor, layout: Layout) -> Any:
        return Counted(theta.new_ones(self.shape)) if self.per_worker else Nothing()

    def observe(self, state: Any, grad: Tensor, peek: Any, now: Now, layout: Layout) -> Any:
        return state if self.per_worker else Counted(state.counted + 1)

    def correct(
        self, theta: Tensor, state: Any, own: Any, push: Push, now: Now, layout: Layout
    ) -> Any:
        kept = own if self.per_worker else state
        grad = (push.grad / kept.counted).to(theta.dtype)
        return Signal(grad, grad), Counted(own.counted + 1) if self.per_worker else own


@pytest.mark.parametrize("per_worker", [False, True])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_numbers_that_are_not_one_for_each_parameter(
    shape: tuple[int, ...], per_worker: bool
) -> None:
    """No kernel may take them for a vector of parameters."""
    rule = tg.Rule(LR, Sgd(), Counts(shape, per_worker))
    exact = run(rule)
    assert (run(rule, "fast") - exact).abs().max() <= 1e-12
    if shape == ():  # the same at every shard
        assert torch.equal(run(rule, shards=2), exact)
    else:
        with pytest.raises(ValueError, match=r"Counts was not found .*shape \(1,\)"):
            run(rule, shards=2)


def test_numbers_of_another_type_have_no_kernel() -> None:
    rule = tg.Rule(LR, Sgd(), Counts((-1,), dtype=torch.float32))
    with pytest.raises(Unsuited):
        trace(rule, torch.float64)
    assert (run(rule, "fast") - run(rule)).abs().max() <= 1e-12


class Begun(NamedTuple):
    rows: Tensor


@dataclass(frozen=True)
class Begins(Correction[Nothing, Begun]):
    """Divides by rows that a worker starts with."""

    what: Callable[[Tensor], Tensor]

    def start_own(self, theta: Tensor, layout: Layout) -> Begun:
        return Begun(self.what(theta))

    def correct(
        self, theta: Tensor, state: Nothing, own: Begun, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Begun]:
        return Signal(push.grad / own.rows, push.grad), own


BEGINNINGS: dict[str, tuple[bool, Callable[[Tensor], Tensor]]] = {
    "ones": (True, torch.ones_like),
    "twos": (True, lambda theta: torch.full_like(theta, 2) * 3),
    "new": (True, lambda theta: theta.new_zeros(len(theta)) + 2),
    "theta": (False, lambda theta: 2 + theta.abs()),
    "signs": (False, lambda theta: torch.where(theta > -0.5, 2.0, 3.0).to(theta.dtype)),
    "periodic": (False, lambda theta: 1 + theta - theta.floor()),
    "number": (False, lambda theta: torch.full_like(theta, 2 if float(theta[0]) > -0.99 else 3)),
    "past torch": (
        False,
        lambda theta: torch.ones_like(theta) * (2 if theta.numpy()[0] > -0.99 else 3),
    ),
    "drawn": (False, lambda theta: torch.rand(len(theta), dtype=theta.dtype) + 1),
    "no vector": (False, lambda theta: theta.new_full((), 2)),
}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_whether_rows_begin_the_same_whenever_a_worker_comes_is_seen(name: str) -> None:
    """Two values of θ tell nothing of the third."""
    alike, what = BEGINNINGS[name]
    rule = tg.Rule(LR, Sgd(0.5), Begins(what))
    assert own_rows_start_alike(rule, START, LAYOUT) == alike
    assert own_rows_start_alike(tg.rules.dana_ga(LR), START, LAYOUT)
    if name == "drawn":
        return
    said: list[str] = []
    late = tg.Schedule.from_order([0] * 30 + [1, 0, 1, 1], 2)  # θ has moved when the second comes
    fast = tg.execute(late, task(), rule, "fast", say=said.append).params
    exact = tg.execute(late, task(), rule, "exact").params
    assert (fast - exact).abs().max() <= 1e-12
    assert any("own rows start" in line for line in said) != alike
