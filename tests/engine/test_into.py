"""Versions made in memory of the caller's: the same bits as anywhere else."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.layout import Layout
from tardigrad.core.trees import named
from tardigrad.engine.kernels import into
from tardigrad.engine.kernels.into import update_into
from tardigrad.engine.shard import WORTH_FOLLOWING, Arrived, Shard
from tests.rules.named_rules import made

SIZE = WORTH_FOLLOWING + 3
"""Not a multiple of what processors compute at once."""
RULES = {name: made(name, 0.1) for name in rules.RULES if name != "muon"} | {
    "weight decay, ema": tg.Rule(0.1, rules.Adam(), weight_decay=0.01, ema=0.9),
    "magnitude": rules.fasgd(0.1, estimator="magnitude"),
    "adaptive": rules.delay_compensated(0.1, adaptive=True),
}


def shards(rule: tg.Rule, dtype: torch.dtype = torch.float32, size: int = SIZE) -> list[Shard]:
    """Two alike, of which the second uses places."""
    theta = torch.randn(size, generator=torch.Generator().manual_seed(3)).to(dtype)
    out = [Shard(rule, theta.clone(), Layout.flat(size)) for _ in range(2)]
    out[1].use_places()
    return out


def both(pair: list[Shard], *workers: int, late: int = 2) -> Tensor:
    """The same update of both, compared; the memory that the second was given."""
    free, placed = pair
    draw = torch.Generator().manual_seed(free.version)
    view = free.theta + 0.1
    arrived = []
    for worker in workers:
        grad = torch.randn(len(view), generator=draw, dtype=view.dtype)
        arrived.append(Arrived(worker, grad, view, late))
    out = torch.full_like(free.theta, torch.nan)
    free.apply(arrived, 1.5)
    placed.apply(arrived, 1.5, out)
    kept, expected = placed.tensors("shard"), free.tensors("shard")
    assert kept.keys() == expected.keys()
    assert all(torch.equal(kept[name], expected[name]) for name in kept)
    assert placed.facts() == free.facts()
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RULES)
def test_every_rule_makes_the_same_bits_in_a_given_place(name: str, dtype: torch.dtype) -> None:
    pair = shards(RULES[name], dtype)
    for version in range(4):
        assert both(pair, version % 2) is pair[1].sent
    assert (pair[0].theta is pair[0].sent) == (pair[1].theta is pair[1].sent)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every update in blocks, by one thread; their lengths as they are made."""
    threads, lengths = torch.get_num_threads(), list[int]()
    plain = into.UpdateInto.in_blocks

    def counted(self: into.UpdateInto, inputs: Any, scalars: Any) -> list[Tensor]:
        lengths.append(len(inputs[0]))
        return plain(self, inputs, scalars)

    torch.set_num_threads(1)
    monkeypatch.setattr(into, "BLOCK", SIZE // 10 // 64 * 64)
    monkeypatch.setattr(into, "WORTH_BLOCKS", SIZE)
    monkeypatch.setattr(into, "FEW", 0)
    monkeypatch.setattr(into.UpdateInto, "in_blocks", counted)
    yield lengths
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RULES)
def test_blocks_make_the_same_bits(name: str, dtype: torch.dtype, small_blocks: list[int]) -> None:
    pair = shards(RULES[name], dtype)
    for version in range(4):
        assert both(pair, version % 2) is pair[1].sent
    assert (pair[0].theta is pair[0].sent) == (pair[1].theta is pair[1].sent)
    assert small_blocks == [SIZE] * 4


def test_a_number_of_the_state_is_no_vector_in_blocks(small_blocks: list[int]) -> None:
    pair = shards(tg.Rule(0.1, Counts()))
    for _ in range(3):
        assert both(pair, 0) is pair[1].sent
    assert [float(t) for n, t in pair[1].tensors("shard").items() if not t.dim()] == [3.0]
    assert small_blocks == [SIZE] * 3


def test_plain_steps_are_not_made_in_blocks(
    small_blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(into, "FEW", 3)
    for rule in (rules.sgd(0.1), rules.sgd(0.1, momentum=0.9)):
        pair = shards(rule)
        assert both(pair, 0) is pair[1].sent
    assert small_blocks == []


def test_groups_workers_that_have_left_and_small_shards_are_made_elsewhere() -> None:
    pair = shards(rules.dana(0.1))
    assert both(pair, 0) is pair[1].sent
    assert both(pair, 0, 1) is not pair[1].sent
    for shard in pair:
        shard.leave(1)
    assert both(pair, 1) is not pair[1].sent
    assert both(pair, 2) is pair[1].sent
    small = shards(rules.sgd(0.1), size=WORTH_FOLLOWING - 1)
    assert both(small, 0) is not small[1].sent


@dataclass(frozen=True)
class Ends(rules.Sgd):
    """A step that ends in an operation which cannot be told where to write, or in none."""

    how: str = "same"

    def step(self, theta: Tensor, *rest: Any) -> Any:
        new, *others = super().step(theta, *rest)
        ends = {
            "same": lambda: theta,
            "in place": lambda: new.mul_(0.5),
            "norm": lambda: new / (1 + new.norm()),
            "wider": lambda: new.double() * 0.5,
        }
        return (ends[self.how](), *others)


@pytest.mark.parametrize("how", ["same", "in place", "norm"])
def test_a_rule_that_cannot_be_followed_so_far_is_made_elsewhere(how: str) -> None:
    rule = tg.Rule(0.1, Ends(how=how))
    assert update_into(rule, torch.float32) is None
    pair = shards(rule)
    assert both(pair, 0) is not pair[1].sent


def test_a_result_of_another_type_has_no_place() -> None:
    rule = tg.Rule(0.1, Ends(how="wider"))
    assert update_into(rule, torch.float32) is None
    assert update_into(rule, torch.float64) is not None


class Count(NamedTuple):
    steps: Tensor


@dataclass(frozen=True)
class Counts(rules.Optimizer[Count, rules.Nothing]):
    """Keeps how many steps it has made, and divides by it."""

    def start(self, theta: Tensor, layout: Layout) -> Count:
        return Count(torch.zeros(()))

    def step(
        self, theta: Tensor, state: Count, owns: Any, slots: Any, signals: Any, now: Any, *_: Any
    ) -> Any:
        steps = state.steps + 1
        made = signals[0].first / steps
        return theta * 0.5 + made * 0.5 - made * now.lr, Count(steps), tuple(owns)


@dataclass(frozen=True)
class Mutates(rules.Sgd):
    def step(self, theta: Tensor, *rest: Any) -> Any:
        theta.add_(1)
        return super().step(theta, *rest)


def test_a_rule_that_changes_its_inputs_is_refused_there_too() -> None:
    _, placed = shards(tg.Rule(0.1, Mutates()))
    grad = torch.ones(SIZE)
    with pytest.raises(ValueError, match="changed one of its inputs in place"):
        placed.apply([Arrived(0, grad, grad, 0)], 1.0, torch.empty(SIZE))


def test_state_that_is_not_there_stays_so() -> None:
    """FASGD by magnitude keeps two empty tensors."""
    _, placed = shards(RULES["magnitude"])
    placed.apply([Arrived(0, torch.ones(SIZE), placed.theta, 0)], 1.0, torch.empty(SIZE))
    assert sorted(t.numel() for t in named(placed.state, "").values()) == [0, 0, SIZE]
