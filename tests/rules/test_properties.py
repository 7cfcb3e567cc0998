"""What holds for every rule: pure, keeps its dtype, converges, resumes, shards."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from root_penalty import RootPenalty
from tardigrad.core.layout import Layout
from tardigrad.core.trees import named
from tardigrad.engine.shard import Arrived, Shard
from tardigrad.rules import (
    RULES,
    Correction,
    Dana,
    Nothing,
    Now,
    Push,
    RuleOwn,
    Sgd,
    Signal,
    fasgd,
    staleness_aware,
)
from tardigrad.scheduling import Recorder
from tardigrad.tasks import Turn, quadratic
from tests.rules.named_rules import made
from tests.rules.rule_table import ELEMENTWISE, LR, TABLE, missing

LAYOUT = Layout(("a", "b", "c"), ((3, 2), (4,), (3,)))
WORKERS = 3


def task(dtype: torch.dtype = torch.float32) -> tg.FunctionTask:
    weights = torch.linspace(0.5, 1.5, LAYOUT.size, dtype=dtype)

    def grad(view: Tensor, worker: int, step: int) -> tuple[Tensor, Tensor]:
        loss = (weights * view.square()).sum()
        return loss, torch.sin(weights * view + 0.3 * worker + 0.1 * step) + 0.1 * view

    return tg.FunctionTask(torch.linspace(-1, 1, LAYOUT.size, dtype=dtype), grad, layout=LAYOUT)


def order(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(WORKERS), weights=[4, 2, 1], k=length)


def run(rule: tg.Rule, dtype: torch.dtype = torch.float32, **options: Any) -> tg.Run:
    schedule = tg.Schedule.from_order(order(40), WORKERS)
    return tg.execute(schedule, task(dtype), rule, engine="exact", **options)


def test_the_table_holds_every_rule() -> None:
    assert not missing()


@pytest.mark.parametrize("name", TABLE)
def test_a_rule_changes_none_of_its_inputs(name: str) -> None:
    """By value, not by torch's counter, which is what executors look at."""
    rule, draw = TABLE[name], torch.Generator().manual_seed(3)
    theta = torch.randn(LAYOUT.size, generator=draw)
    state, own = rule.start(theta, LAYOUT), rule.start_own(theta, LAYOUT)
    owns: tuple[RuleOwn, ...] = (own, rule.start_own(theta, LAYOUT))
    for update in range(3):
        pushes = [
            Push(
                torch.randn(LAYOUT.size, generator=draw),
                theta + 0.1 * update * torch.randn(LAYOUT.size, generator=draw),
                torch.tensor(2.0 + worker, dtype=torch.float64),
            )
            for worker in range(2)
        ]
        now = rule.scalars(tg.rates.Progress(update, update)).tensors()
        inputs = [*named((theta, state, owns, pushes), "in").values(), now.lr, now.lr_max]
        before = [tensor.clone() for tensor in inputs]
        out = rule.apply(theta, state, owns, (0, 1), pushes, now, LAYOUT)
        rule.send(out[0], out[1], now, 2)
        rule.leave(out[1], out[2][0])
        assert all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True))
        moved, state, owns = out
        assert not torch.equal(moved, theta)
        theta = moved


@dataclass(frozen=True)
class Mutating(Correction[Nothing, Nothing]):
    """Changes what it was given."""

    what: str

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        shared = {"staleness": push.staleness, "lr": now.lr}
        ({"theta": theta, "grad": push.grad, "view": push.view} | shared)[self.what].mul_(0.5)
        return Signal(push.grad, push.grad), own


@dataclass(frozen=True)
class MutatingSgd(Sgd):
    """Steps, or sends, in place."""

    where: str = "step"

    def step(self, theta: Tensor, *rest: Any) -> Any:
        new, *others = super().step(theta, *rest)
        return (theta.copy_(new) if self.where == "step" else new, *others)

    def send(self, theta: Tensor, state: Any, now: Now, gradients: int) -> Tensor:
        return theta.mul_(0.9) if self.where == "send" else theta


@pytest.mark.parametrize(
    "rule",
    [
        *(
            tg.Rule(0.1, Sgd(), Mutating(what))
            for what in ("theta", "grad", "view", "staleness", "lr")
        ),
        *(tg.Rule(0.1, MutatingSgd(where=where)) for where in ("step", "send")),
    ],
)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_rule_that_changes_its_inputs_is_refused(rule: tg.Rule, shards: int) -> None:
    schedule = tg.Schedule.from_order([0, 1, 0], 2, shards=shards)
    before = tg.execute(schedule, task(), staleness_aware(0.1), engine="exact")
    with pytest.raises(ValueError, match=r"changed one of its inputs in place.*write x = x \+ y"):
        tg.execute(schedule, task(), rule, engine="exact")
    after = tg.execute(schedule, task(), staleness_aware(0.1), engine="exact")
    assert torch.equal(after.params, before.params)  # nothing is left of what it did


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TABLE)
def test_a_rule_keeps_the_dtype(name: str, dtype: torch.dtype) -> None:
    rule = TABLE[name]
    theta = task(dtype).start()
    shard = Shard(rule, theta, LAYOUT)
    for delay in range(3):
        shard.apply([Arrived(worker, theta, theta * 0.9, delay) for worker in range(2)])
    kept = shard.tensors("shard")
    assert {tensor.dtype for tensor in kept.values()} == {dtype}
    assert torch.isfinite(shard.theta).all()


@pytest.mark.parametrize("name", TABLE)
def test_a_rule_converges_on_a_quadratic(name: str) -> None:
    """Four asynchronous workers on a bowl: the loss falls a thousandfold."""
    rule = TABLE[name]
    bowl = quadratic(dimension=10, condition=5.0)
    start = bowl.evaluate(bowl.start(), (), "")["loss"]
    cosine = tg.rates.cosine(tg.rates.learning_rate(rule.lr).max, over=1200)
    done = tg.simulate(
        bowl, replace(rule, lr=cosine), cluster=tg.Gamma(workers=4), updates=1200, engine="exact"
    )
    end = bowl.evaluate(done.params, (), "")["loss"]
    assert end < start / 1000, (start, end)


@pytest.mark.parametrize(
    ("name", "shards"), [(name, 1) for name in TABLE] + [(name, 3) for name in ELEMENTWISE]
)
def test_a_resumed_run_has_the_same_bits(name: str, shards: int, tmp_path: Path) -> None:
    rule = TABLE[name]
    schedule = tg.Schedule.from_order(order(40), WORKERS, shards=shards)
    measured = tg.Evaluation(every=10, measures=("gap", "b_staleness"))
    whole = tg.execute(schedule, task(), rule, engine="exact", evaluation=measured)

    class Killed(Exception):
        pass

    def kill(tick: Any) -> None:
        if tick.updates == 23:
            raise Killed

    options: dict[str, Any] = {"engine": "exact", "evaluation": measured}
    saving = tg.Checkpoints(tmp_path, every=9)
    with pytest.raises(Killed):
        tg.execute(schedule, task(), rule, watch=kill, checkpoints=saving, **options)
    ticks: list[int] = []
    resumed = tg.execute(
        schedule,
        task(),
        rule,
        checkpoints=replace(saving, resume=True),
        watch=lambda t: ticks.append(t.updates),
        **options,
    )
    assert ticks[0] == 19
    assert torch.equal(resumed.params, whole.params)
    assert resumed.history.loss == whole.history.loss
    assert resumed.history.gap == whole.history.gap
    assert resumed.history.b_staleness == whole.history.b_staleness
    if rule.ema is not None:
        assert resumed.average is not None
        assert whole.average is not None
        assert torch.equal(resumed.average, whole.average)

    def without_wall(records: list[dict[str, float]]) -> list[dict[str, float]]:
        return [{k: v for k, v in record.items() if k != "wall_s"} for record in records]

    assert without_wall(resumed.history.records) == without_wall(whole.history.records)


@pytest.mark.parametrize("policy", [tg.Async(), tg.Async(wait=False), tg.Sync()], ids=repr)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_shards_change_no_bit_of_an_elementwise_rule(name: str, policy: Any) -> None:
    rule = TABLE[name]
    rounds = [0, 1, 2, 2, 0, 1, 1, 0, 2] * 4
    arrivals = rounds if policy == tg.Sync() else order(36)
    runs = [
        tg.execute(
            tg.Schedule.from_order(arrivals, WORKERS, policy, shards=shards),
            task(),
            rule,
            engine="exact",
        )
        for shards in (1, 2, 5)
    ]
    assert torch.equal(runs[0].params, runs[1].params)
    assert torch.equal(runs[0].params, runs[2].params)


def test_layers_survive_sharding_by_tensor() -> None:
    for name in ("gap_aware layer", "muon", "muon bfloat16", "muon decay"):
        one = run(TABLE[name])
        schedule = tg.Schedule.from_order(order(40), WORKERS, shards=3)
        two = tg.execute(schedule, task(), TABLE[name], engine="exact", shard_by="tensor")
        assert torch.equal(one.params, two.params), name


def test_norms_over_what_a_shard_does_not_hold_are_refused() -> None:
    schedule = tg.Schedule.from_order(order(5), WORKERS, shards=2)
    with pytest.raises(ValueError, match=r'Gap .*scope "model".*shards = 1'):
        tg.execute(schedule, task(), TABLE["gap_aware global"], engine="exact")
    schedule = tg.Schedule.from_order(order(5), WORKERS, shards=3)
    with pytest.raises(ValueError, match=r'Gap .*scope "tensor".*shard_by = "tensor"'):
        tg.execute(schedule, task(), TABLE["gap_aware layer"], engine="exact")
    with pytest.raises(ValueError, match=r'Muon .*scope "tensor".*shard_by = "tensor"'):
        tg.execute(schedule, task(), TABLE["muon"], engine="exact")


@pytest.mark.parametrize("name", TABLE)
def test_the_same_run_twice_has_the_same_bits(name: str) -> None:
    assert torch.equal(run(TABLE[name]).params, run(TABLE[name]).params)


# DC-SSGD goes through a group one by one, DANA keeps a buffer each.
AVERAGING = [
    name
    for name, rule in TABLE.items()
    if not (rule.within_group or isinstance(rule.optimizer, Dana))
    and name != "muon bfloat16"  # where a last bit may be a hundredth
]


def workers_and_their_mean() -> tuple[tg.FunctionTask, tg.FunctionTask]:
    many = task(torch.float64)

    def mean_grad(view: Tensor, worker: int, step: int) -> Tensor:
        grads = [many.gradient(view, Turn(w, step, 0)).grad for w in range(WORKERS)]
        return torch.stack(grads).mean(0)

    return many, tg.FunctionTask(many.start(), mean_grad, layout=LAYOUT)


@pytest.mark.parametrize("name", AVERAGING)
def test_a_group_with_equal_views_is_one_larger_batch(name: str) -> None:
    """Synchronous λ workers = one worker with the mean of their gradients, to rounding."""
    rule = TABLE[name]
    many, one = workers_and_their_mean()
    rounds = tg.Schedule.from_order([0, 1, 2] * 20, WORKERS, tg.Sync())
    group = tg.execute(rounds, many, rule, engine="exact")
    single = tg.execute(tg.Schedule.from_order([0] * 20, 1), one, rule, engine="exact")
    assert (group.params - single.params).abs().max() <= 1e-12


LATE = 2
NOT_LATE = {
    "delay_compensated": "squares each gradient",
    "delay compensation": "squares each gradient",
    "staleness_aware nesterov": "in a group the penalty goes on each gradient, not on the momentum",
    "exponential_penalty": "in a group the penalty goes on each gradient, not on the momentum",
    "delay_adaptive threshold": "in a group the penalty goes on each gradient, not on the momentum",
    "delay adaptive, adam": "in a group the penalty goes on each gradient, not on the momentum",
    "pipemare nesterov": "in a group the penalty goes on each gradient, not on the momentum",
}


def late(each: int) -> tg.Schedule:
    """Updates of `each` gradients, all computed at what was sent `LATE` updates before."""
    recorder = Recorder(workers=each, shards=1)
    for version in range(40):
        read = (max(0, version - LATE),)
        rows = [recorder.start(w, version, 0, read, float(version)) for w in range(each)]
        recorder.apply(0, rows, 1.0, float(version))
    return recorder.schedule()


@pytest.mark.parametrize("name", AVERAGING)
def test_a_group_with_equal_late_views_is_one_larger_batch(name: str) -> None:
    rule = TABLE[name]
    many, one = workers_and_their_mean()
    group = tg.execute(late(WORKERS), many, rule, engine="exact")
    single = tg.execute(late(1), one, rule, engine="exact")
    apart = (group.params - single.params).abs().max()
    if name.startswith(tuple(NOT_LATE)):
        assert apart > 1e-5
    else:
        assert apart <= 1e-12


@pytest.mark.parametrize("name", RULES)
def test_rules_made_alike_are_equal(name: str) -> None:
    assert made(name, 0.1) == made(name, 0.1)
    assert made(name, 0.1) != made(name, 0.2)


def test_a_users_rule_is_composed_like_any_other() -> None:
    """With power 1 it is the staleness-aware rule."""
    same = tg.Rule(LR, Sgd(0.6), RootPenalty(1.0))
    law = staleness_aware(LR, momentum=0.6, on="gradient")
    assert torch.equal(run(same).params, run(law).params)
    assert not torch.equal(run(same).params, run(TABLE["root_penalty"]).params)


@pytest.mark.parametrize("estimator", ["std", "printed"])
def test_fasgd_survives_a_gradient_that_does_not_vary(estimator: Any) -> None:
    """E[g²] − E[g]² is 0 but for rounding, which in float32 may fall far below −ε."""
    grad = torch.linspace(900, 1100, LAYOUT.size)
    shard = Shard(fasgd(LR, eps=1e-8, estimator=estimator), torch.zeros(LAYOUT.size), LAYOUT)
    below = False
    for _ in range(400):
        shard.apply([Arrived(0, grad, shard.theta, 0)])
        moments = shard.state.correction
        below |= bool((moments.mean_square - moments.mean**2 < -1e-3).any())
    assert below
    assert shard.theta.isfinite().all()
