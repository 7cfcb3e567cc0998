"""What a rule looks at is found from its code: rules that a user might write, of which most say
nothing of themselves, on one shard and several, in both engines."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.engine.drive import drive
from tardigrad.engine.fast.cuda_graphs import CudaGraphs
from tardigrad.engine.fast.stack import Replica
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import trace
from tardigrad.engine.kernels.starts import own_rows_start_alike
from tardigrad.engine.scope import not_elementwise
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import (
    Adam,
    Correction,
    Gap,
    Nothing,
    Now,
    Optimizer,
    Push,
    Sgd,
    Signal,
    combine,
)
from tests.engine.eager_graphs import eager  # noqa: F401
from tests.engine.fast_cases import task as perceptron_task

LR = 0.05
LAYOUT = Layout(("weight", "bias", "out"), ((2, 3), (3,), (2, 2)))
START = torch.linspace(-1, 2, LAYOUT.size, dtype=torch.float64)
ORDER = [0, 1, 2, 0, 2, 1, 1, 0, 2] * 4


def task() -> tg.FunctionTask:
    curvature = torch.linspace(0.5, 1.5, LAYOUT.size, dtype=torch.float64)

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        return curvature * view + 0.1 * worker + 0.02 * (step % 3)

    return tg.FunctionTask(START, grad, layout=LAYOUT)


def run(
    rule: tg.Rule, engine: Any = "exact", shards: int = 1, say: Any = None, **options: Any
) -> Tensor:
    schedule = tg.Schedule.from_order(ORDER, 3, shards=shards)
    return tg.execute(schedule, task(), rule, engine, say=say, **options).params


@dataclass(frozen=True)
class Does(Correction[Any, Nothing]):
    """g ← what(θ, push, now, layout)."""

    what: Callable[[Tensor, Push, Now, Layout], Tensor]

    def correct(
        self, theta: Tensor, state: Any, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        return Signal(self.what(theta, push, now, layout), push.grad), own


class DoesAlone(Does):
    scope = "parameter"


class DoesByTensor(Does):
    scope = "tensor"


class DoesAll(Does):
    scope = "model"


class DoesLayers(Does):
    scope: Any = "layer"  # no such word


@dataclass(frozen=True)
class Normed(Optimizer[Nothing, Nothing]):
    """θ ← θ − η g ‖θ‖ / (‖g‖ + 1), as LAMB and LARS do."""

    def step(
        self,
        theta: Tensor,
        state: Any,
        owns: Any,
        slots: Any,
        signals: Any,
        now: Now,
        layout: Layout,
    ) -> Any:
        direction = self._scaled(theta, combine(signals).first, layout)
        return torch.addcmul(theta, direction, -now.lr), state, tuple(owns)

    def _scaled(self, theta: Tensor, grad: Tensor, layout: Layout) -> Tensor:
        return grad * theta.norm() / (grad.norm() + 1)


class NormedAll(Normed):
    scope = "model"


@dataclass(frozen=True)
class NormedSilently(Normed):
    """Each tensor by its own norms, or each row of a matrix by its."""

    rows: bool = False

    def _scaled(self, theta: Tensor, grad: Tensor, layout: Layout) -> Tensor:
        out = []
        for x, g in zip(*(layout.unflatten(v).values() for v in (theta, grad)), strict=True):
            over = -1 if self.rows and x.dim() > 1 else None
            size, length = (torch.linalg.vector_norm(v, dim=over, keepdim=True) for v in (x, g))
            out.append((g * size / (length + 1)).flatten())
        return torch.cat(out)


class NormedByTensor(NormedSilently):
    scope = "tensor"


class NormedAdam(Adam):
    """Says nothing, and is built on one that treats each parameter alone."""

    def step(self, theta: Tensor, *rest: Any) -> Any:
        new, *others = super().step(theta, *rest)
        return (theta + (new - theta) / (1 + (new - theta).norm()), *others)


class PeeksAtAll(Sgd):
    """Only its tentative step is of all parameters."""

    def peek(self, *given: Any) -> Tensor:
        step = super().peek(*given)
        return step / (1 + step.norm())


class OfGroups(Sgd):
    """Only groups are looked at together."""

    def step(
        self, theta: Tensor, state: Any, owns: Any, slots: Any, signals: Any, *now: Any
    ) -> Any:
        scale = 1 / (1 + signals[1].first.sum()) if len(signals) > 1 else 1
        new, *others = super().step(theta, state, owns, slots, signals, *now)
        return (theta + (new - theta) * scale, *others)


def past_torch(theta: Tensor, push: Push, now: Now, layout: Layout) -> Tensor:
    """A branch on numbers, without torch knowing."""
    return push.grad * 0.5 if push.grad.detach().numpy().max() > 1.9 else push.grad


TOGETHER: dict[str, Callable[[Tensor, Push, Now, Layout], Tensor]] = {
    "norm": lambda theta, push, now, layout: push.grad / (1 + push.grad.norm()),
    "vector_norm": lambda theta, push, now, layout: (
        push.grad / (1 + torch.linalg.vector_norm(theta - push.view))
    ),
    "sum": lambda theta, push, now, layout: push.grad - 0.01 * push.grad.sum(),
    "mean": lambda theta, push, now, layout: push.grad - push.grad.mean(),
    "max": lambda theta, push, now, layout: push.grad / (1 + push.grad.abs().max()),
    "keepdim": lambda theta, push, now, layout: push.grad - push.grad.mean(0, keepdim=True),
    "dot": lambda theta, push, now, layout: push.grad * torch.tanh(push.grad @ theta),
    "first": lambda theta, push, now, layout: push.grad * torch.tanh(theta[0]),
    "roll": lambda theta, push, now, layout: push.grad + 0.1 * theta.roll(1),
    "cumsum": lambda theta, push, now, layout: push.grad + 0.01 * theta.cumsum(0),
    "sort": lambda theta, push, now, layout: push.grad + 0.01 * theta.sort().values,
    "softmax": lambda theta, push, now, layout: push.grad * torch.softmax(theta, 0),
    "outer": lambda theta, push, now, layout: (push.grad[:, None] * theta).sum(0) * 0.1,
    "count": lambda theta, push, now, layout: push.grad * 10 / len(theta),
    "place": lambda theta, push, now, layout: push.grad / (1 + torch.arange(len(theta))),
    "layout": lambda theta, push, now, layout: push.grad / len(layout.names),
    "scalars": lambda theta, push, now, layout: push.grad * push.staleness.sum() * now.lr.mean(),
    "number": lambda theta, push, now, layout: push.grad / (1 + float(push.grad.norm())),
    "branch": lambda theta, push, now, layout: push.grad if push.grad.sum() > 1 else push.grad / 2,
    "held": lambda theta, push, now, layout: push.grad * (1 + START[: len(theta)]),
    "past torch": past_torch,
}
ALONE: dict[str, Callable[[Tensor, Push, Now, Layout], Tensor]] = {
    "plain": lambda theta, push, now, layout: push.grad / push.staleness,
    "view": lambda theta, push, now, layout: push.grad * torch.exp((theta - push.view).abs() * -1),
    "where": lambda theta, push, now, layout: torch.where(push.grad > 1, push.grad / 2, push.grad),
    "tanh": lambda theta, push, now, layout: torch.tanh(push.grad) + theta.sign() * 0.01,
    "power": lambda theta, push, now, layout: push.grad * theta.abs() ** 0.3,
    "constant": lambda theta, push, now, layout: push.grad * torch.tensor(0.3) * push.staleness,
    "in place": lambda theta, push, now, layout: push.grad.clone().mul_(0.5),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_who_looks_at_several_parameters_is_refused_on_several_shards(name: str) -> None:
    rule = tg.Rule(LR, Sgd(0.5), Does(TOGETHER[name]))
    assert not_elementwise(rule, torch.float64) is not None
    for engine in ("exact", "fast"):
        with pytest.raises(ValueError, match=r'Does was not found .* scope = "parameter"'):
            run(rule, engine, shards=2)


@pytest.mark.parametrize("name", TOGETHER)
def test_who_looks_at_several_parameters_steps_back_in_the_fast_engine(name: str) -> None:
    rule = tg.Rule(LR, Sgd(0.5), Does(TOGETHER[name]))
    with pytest.raises(Unsuited):
        trace(rule, torch.float64)
    said: list[str] = []
    fast, exact = run(rule, "fast", say=said.append), run(rule)
    assert any("updates one by one: no kernel" in line for line in said)
    assert (fast - exact).abs().max() <= 1e-12
    assert not torch.equal(exact, run(tg.Rule(LR, Sgd(0.5))))


@pytest.mark.parametrize("name", ALONE)
def test_who_treats_each_parameter_alone_need_not_say_so(name: str) -> None:
    """Whether or not there is a kernel for it."""
    rule = tg.Rule(LR, Sgd(0.5), Does(ALONE[name]))
    exact = run(rule)
    assert torch.equal(exact, run(rule, shards=3))
    for shards in (1, 2):
        assert (run(rule, "fast", shards) - exact).abs().max() <= 1e-12


def test_reading_the_view_is_seen() -> None:
    """What the GPU's graphs keep views by."""
    for name, what in ALONE.items():
        rule = tg.Rule(LR, Sgd(0.5), Does(what))
        if not_kernel(rule):
            continue
        assert trace(rule, torch.float32).reads_view == (name == "view")
    for name, rule in {name: tg.rules.RULES[name](LR) for name in ("gap_aware", "sgd")}.items():
        assert trace(rule, torch.float32).reads_view == (name == "gap_aware")


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["plain", "view"])
def test_the_gpus_graphs_keep_the_views_that_a_rule_reads(name: str) -> None:
    rule = tg.Rule(LR, Sgd(0.5), Does(ALONE[name]))
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=7, heterogeneous=True), updates=120)
    graphs = CudaGraphs([Job.on_one_shard(schedule, perceptron_task(), rule)])
    graphs.prepare()
    exact = tg.execute(schedule, perceptron_task(), rule, "exact").params
    assert (drive(Replica(graphs)).params - exact).abs().max() <= 1e-11


def not_kernel(rule: tg.Rule) -> bool:
    try:
        trace(rule, torch.float32)
    except Unsuited:
        return True
    return False


@pytest.mark.parametrize("optimizer", [Normed(), NormedAll(), NormedAdam()], ids=repr)
def test_an_optimizer_with_a_norm_on_one_shard(optimizer: Any) -> None:
    rule = tg.Rule(LR, optimizer)
    assert (run(rule, "fast") - run(rule)).abs().max() <= 1e-12
    many = tg.Schedule.from_order(ORDER, 3, tg.SoftSync(groups=1))
    fast, exact = (tg.execute(many, task(), rule, e).params for e in ("fast", "exact"))
    assert (fast - exact).abs().max() <= 1e-12


@pytest.mark.parametrize("optimizer", [Normed(), NormedAdam(), PeeksAtAll(0.5), OfGroups()])
def test_an_optimizer_with_a_norm_is_refused_on_several_shards(optimizer: Any) -> None:
    name = type(optimizer).__name__
    for correction in (tg.rules.Raw(), Gap(step="tentative"), Gap("layer", "tentative")):
        rule = tg.Rule(LR, optimizer, correction)
        with pytest.raises(ValueError, match=rf"{name} was not found to treat each parameter"):
            run(rule, shards=3, shard_by="tensor")


def test_what_is_said_decides_how_shards_may_be_cut() -> None:
    rule = tg.Rule(LR, NormedAll())
    with pytest.raises(ValueError, match=r'NormedAll .*scope "model".*use shards = 1'):
        run(rule, shards=3, shard_by="tensor")
    norm = TOGETHER["norm"]
    with pytest.raises(ValueError, match=r'DoesAll .*scope "model".*use shards = 1'):
        run(tg.Rule(LR, Sgd(), DoesAll(norm)), shards=2)
    with pytest.raises(ValueError, match=r'DoesByTensor .*shard_by = "tensor"'):
        run(tg.Rule(LR, Sgd(), DoesByTensor(norm)), shards=3)
    with pytest.raises(ValueError, match=r"DoesLayers\.scope must be .*'tensor'"):
        run(tg.Rule(LR, Sgd(), DoesLayers(norm)), shards=2)


def by_tensor(theta: Tensor, push: Push, now: Now, layout: Layout) -> Tensor:
    parts = layout.unflatten(push.grad).values()
    return torch.cat([(part / (1 + part.norm())).flatten() for part in parts])


def test_norms_of_tensors_survive_sharding_by_tensor() -> None:
    rule = tg.Rule(LR, Sgd(0.5), DoesByTensor(by_tensor))
    exact = run(rule)
    for engine in ("exact", "fast"):
        for shards in (1, 2, 3):
            sharded = run(rule, engine, shards, shard_by="tensor")
            assert (sharded - exact).abs().max() <= 1e-12


@pytest.mark.parametrize("rows", [False, True])
def test_an_optimizer_by_tensor_survives_sharding_by_tensor(rows: bool) -> None:
    rule = tg.Rule(LR, NormedByTensor(rows=rows))
    exact = run(rule)
    for engine in ("exact", "fast"):
        for shards in (1, 2, 3):
            sharded = run(rule, engine, shards, shard_by="tensor")
            assert (sharded - exact).abs().max() <= 1e-12
    with pytest.raises(ValueError, match=r'NormedByTensor .*shard_by = "tensor"'):
        run(rule, shards=3)
    other = run(tg.Rule(LR, NormedByTensor(rows=not rows)))
    assert not torch.allclose(exact, other)


def test_an_optimizer_that_asks_for_the_layout_and_says_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"NormedSilently was not found .*asks for the layout"):
        run(tg.Rule(LR, NormedSilently()), shards=3, shard_by="tensor")


def test_a_word_that_the_code_contradicts_is_refused() -> None:
    rule = tg.Rule(LR, Sgd(), DoesAlone(TOGETHER["norm"]))
    with pytest.raises(ValueError, match=r"DoesAlone says .* linalg_vector_norm .* shards = 1"):
        run(rule, shards=2)


def test_a_word_is_taken_where_the_code_cannot_be_followed() -> None:
    def read(theta: Tensor, push: Push, now: Now, layout: Layout) -> Tensor:
        return push.grad / 2 if float(push.staleness) > 2 else push.grad

    with pytest.raises(ValueError, match=r"Does was not found .*reads numbers out of tensors"):
        run(tg.Rule(LR, Sgd(), Does(read)), shards=2)
    said = tg.Rule(LR, Sgd(), DoesAlone(read))
    for engine in ("exact", "fast"):
        assert (run(said, engine, shards=2) - run(said)).abs().max() <= 1e-12


def test_a_rule_that_reads_tensors_is_refused_where_the_schedule_is_made_meanwhile() -> None:
    rule = tg.Rule(LR, Normed(), tg.rules.Fasgd())
    with pytest.raises(ValueError, match=r"Normed was not found to treat each parameter alone"):
        tg.simulate(
            task(), rule, cluster=tg.Gamma(workers=3), shards=2, link=tg.BandwidthAware(0.1)
        )


def test_a_run_on_ray_is_refused_before_it_starts() -> None:
    pytest.importorskip("ray")
    rule = tg.Rule(LR, Normed())
    with pytest.raises(ValueError, match=r"Normed was not found to treat each parameter alone"):
        tg.train(task(), rule, workers=2, shards=2, updates=5)


class OfWeights(Sgd):
    """Is written for tensors of certain names."""

    def start(self, theta: Tensor, layout: Layout) -> Any:
        assert layout.unflatten(theta)["weight"].shape == (2, 3)
        return super().start(theta, layout)


@pytest.mark.parametrize("link", [tg.Every(pull=2), tg.BandwidthAware(0.1)], ids=repr)
def test_an_optimizer_is_given_the_layout_of_the_task_and_no_other(link: Any) -> None:
    rule = tg.Rule(LR, OfWeights(0.5), tg.rules.Fasgd())
    given = tg.Rule(LR, Sgd(0.5), tg.rules.Fasgd())
    ends = [
        tg.simulate(task(), r, cluster=tg.Gamma(workers=3), updates=20, link=link).params
        for r in (rule, given)
    ]
    assert torch.equal(*ends)


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
