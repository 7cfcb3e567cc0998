"""Known traces of the newer rules, and the limits in which they are older ones."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.layout import Layout
from tardigrad.engine.shard import Arrived, Shard
from tardigrad.experiment import Spec
from tardigrad.rules import weights
from tardigrad.tasks import Turn
from tests.experiment.example_spec import example
from tests.rules import reference_newer as ref
from tests.rules.reference_server import Now, Push
from tests.rules.test_one_worker import alone, module_task

unchecked: Any = rules
"""For arguments that a type checker would refuse."""


def number(x: float) -> Tensor:
    return torch.tensor([x], dtype=torch.float64)


def shard(rule: tg.Rule, theta: Tensor | None = None, layout: Layout | None = None) -> Shard:
    theta = number(1.0) if theta is None else theta
    return Shard(rule, theta, layout or Layout.flat(len(theta)))


def trace(rule: tg.Rule, gradient: Callable[[int, Tensor], Tensor], updates: int) -> list[float]:
    """θ after each update of one worker, from 1."""
    server, out = shard(rule), []
    for update in range(updates):
        view = server.sent
        server.apply([Arrived(0, gradient(update, view), view, 0)])
        out.append(server.theta.item())
    return out


def test_delayed_nesterovs_trace() -> None:
    pushes = [1, -0.5, 0.25, 2, 0, 1]
    found = trace(rules.delayed_nesterov(0.1, every=3), lambda k, _: number(pushes[k]), 6)
    assert found == pytest.approx(
        [0.96666667, 0.98333333, 0.9525, 0.88583333, 0.88583333, 0.74225], abs=5e-9
    )


def test_schedule_frees_trace() -> None:
    """f = x²/2: gradients at what was sent, and the average is what is evaluated."""
    found = trace(rules.schedule_free(0.5), lambda _, view: view, 4)
    assert found == pytest.approx([0.5, 0.375, 0.27291667, 0.1903125], abs=5e-9)


def test_schedule_free_sends_what_lies_between_the_iterate_and_its_average() -> None:
    server = shard(rules.schedule_free(0.5, beta=0.9))
    for _ in range(3):
        server.apply([Arrived(0, server.sent, server.sent, 0)])
    (z,) = server.state.optimizer
    assert not torch.equal(server.sent, server.theta)
    assert torch.allclose(server.sent, 0.1 * z + 0.9 * server.theta, rtol=0, atol=1e-15)


def test_what_is_evaluated_of_schedule_free_is_the_average() -> None:
    """As the run's parameters, its evaluations and files are, while workers see what is sent."""
    seen: list[float] = []

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        seen.append(view.item())
        return view

    task = tg.FunctionTask(number(1.0), grad)
    run = tg.execute(alone(tg.Async(), 4), task, rules.schedule_free(0.5), engine="exact")
    assert run.params.item() == pytest.approx(0.1903125, abs=5e-9)
    assert seen == pytest.approx([1.0, 0.5, 0.3625, 0.2525], abs=1e-12)


@pytest.mark.parametrize(
    ("beta", "law"),
    [(0.0, "polyak"), (1.0, "primal")],
)
def test_schedule_free_at_its_ends(beta: float, law: str) -> None:
    """β = 0: SGD, of which the average is kept; β = 1: gradients at the average."""
    found = trace(rules.schedule_free(0.3, beta=beta), lambda _, view: view, 5)
    z, x = 1.0, 1.0
    for k, mine in enumerate(found, 1):
        z -= 0.3 * (z if law == "polyak" else x)
        x += (z - x) / k
        assert mine == pytest.approx(x, abs=1e-14)


def test_n_pushes_of_delayed_nesterov_are_one_nesterov_step_on_their_mean() -> None:
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(7, generator=draw, dtype=torch.float64)
    for every in (2, 5):
        delayed = shard(rules.delayed_nesterov(0.1, every, momentum=0.8), start)
        plain = shard(rules.sgd(0.1, 0.8, nesterov=True), start)
        for _ in range(6):
            grads = torch.randn(every, 7, generator=draw, dtype=torch.float64)
            for grad in grads:
                delayed.apply([Arrived(0, grad, start, 0)])
            plain.apply([Arrived(0, grads.mean(0), start, 0)])
            assert (delayed.theta - plain.theta).abs().max() <= 1e-12


def test_fedasync_mixes_the_workers_model_in() -> None:
    theta, view, grad = number(2.0), number(1.0), number(0.25)
    for weight, s in (
        (weights.polynomial(0.5), 0.5),
        (weights.hinge(10.0, 2.0), 1 / 11),
        (weights.hinge(), 1.0),
        (weights.constant(), 1.0),
    ):
        server = shard(rules.fedasync(0.6, weight), theta)
        server.apply([Arrived(0, grad, view, 3)])
        a = 0.6 * s
        assert server.theta.item() == pytest.approx((1 - a) * 2.0 + a * 0.75, abs=1e-15)


@pytest.mark.parametrize("name", weights.WEIGHTS)
def test_a_weight_of_no_delay_is_one(name: str) -> None:
    weight = weights.WEIGHTS[name]()
    nothing = torch.zeros((), dtype=torch.float64)
    assert weight.of(nothing).item() == 1.0
    later = [weight.of(nothing + d).item() for d in range(12)]
    assert later == sorted(later, reverse=True)


def test_pipemares_penalty_fades() -> None:
    """d = 4: a quarter of the step at first, half of it midway, all of it in the end."""
    server = shard(rules.pipemare(0.1, updates=2))
    moved = []
    for _ in range(4):
        before = server.theta
        server.apply([Arrived(0, number(1.0), before, 4)])
        moved.append((before - server.theta).item())
    assert moved == pytest.approx([0.025, 0.05, 0.1, 0.1], abs=1e-15)


SHAPES = ((3, 2), (4,), (2, 5), (1, 1), (2, 2, 2), (3, 3))


@pytest.mark.parametrize("match_rms", [False, True])
def test_muon_on_tall_wide_and_square_matrices(match_rms: bool) -> None:
    layout = Layout(tuple("abcdef"), SHAPES)
    draw = torch.Generator().manual_seed(1)
    theta = torch.randn(layout.size, generator=draw, dtype=torch.float64)
    adjust: Any = "match_rms_adamw" if match_rms else "original"
    server = shard(rules.muon(0.05, adjust_lr=adjust, precision="full"), theta, layout)
    twin = ref.Muon(SHAPES, match_rms=match_rms)
    twin.start(theta.tolist())
    for update in range(1, 13):
        grad = torch.randn(layout.size, generator=draw, dtype=torch.float64)
        server.apply([Arrived(0, grad, theta, 0)])
        twin.update([Push(0, grad.tolist(), [], 0)], Now(0.05, 0.05, update))
        expected = torch.tensor(twin.theta, dtype=torch.float64)
        assert (server.theta - expected).abs().max() <= 1e-12


def trained(make: Callable[[Sequence[Any], Sequence[Any]], Any], dtype: torch.dtype) -> Tensor:
    """By torch's optimizers: one for matrices, one for the rest."""
    task, module = module_task(dtype)
    params = list(module.parameters())
    optimizers = make([p for p in params if p.ndim == 2], [p for p in params if p.ndim != 2])
    for step in range(100):
        inputs, targets = task.batch(Turn(0, step, step))
        module.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        for optimizer in optimizers:
            optimizer.step()
    return torch.cat([p.detach().flatten() for p in params])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()], ids=["async", "sync"])
def test_muon_has_the_bits_of_torch(policy: Any, dtype: torch.dtype) -> None:
    plain = trained(
        lambda matrices, rest: (
            torch.optim.Muon(matrices, 0.01),
            torch.optim.AdamW(rest, 0.01, weight_decay=0.1),
        ),
        dtype,
    )
    task, _ = module_task(dtype)
    run = tg.execute(alone(policy, 100), task, rules.muon(0.01), engine="exact")
    assert torch.equal(run.params, plain)
    options = trained(
        lambda matrices, rest: (
            torch.optim.Muon(
                matrices,
                0.02,
                weight_decay=0.05,
                momentum=0.8,
                nesterov=False,
                ns_coefficients=(3.0, -3.2, 1.2),
                eps=1e-5,
                ns_steps=3,
                adjust_lr_fn="match_rms_adamw",
            ),
            torch.optim.AdamW(rest, 0.02, (0.8, 0.95), 1e-6, weight_decay=0.05),
        ),
        dtype,
    )
    rule = rules.muon(
        0.02,
        momentum=0.8,
        nesterov=False,
        ns_coefficients=(3.0, -3.2, 1.2),
        ns_steps=3,
        eps=1e-5,
        adjust_lr="match_rms_adamw",
        betas=(0.8, 0.95),
        adam_eps=1e-6,
        weight_decay=0.05,
    )
    run = tg.execute(alone(policy, 100), task, rule, engine="exact")
    assert torch.equal(run.params, options)


def test_muon_wants_whole_tensors_and_says_so() -> None:
    task, _ = module_task(torch.float64)
    cluster = tg.Gamma(workers=2)
    with pytest.raises(ValueError, match=r'Muon looks at whole tensors .* shard_by = "tensor"'):
        tg.simulate(task, rules.muon(0.01), cluster=cluster, updates=3, shards=2)
    whole, parts = (
        tg.simulate(
            task, rules.muon(0.01), cluster=cluster, updates=9, shards=shards, shard_by="tensor"
        ).params
        for shards in (1, 2)
    )
    assert torch.equal(whole, parts)


def made(**rule: Any) -> tg.Rule:
    return Spec.of({**example(), "rule": rule}).make_rule()


def test_weights_and_the_number_of_workers_in_files() -> None:
    hinge = {"name": "hinge", "a": 3.0}
    assert made(name="fedasync") == rules.fedasync()
    assert made(name="fedasync", alpha=0.4, weight="hinge") == rules.fedasync(0.4, weights.hinge())
    assert made(name="staleness_weighted", lr=0.1, weight=hinge) == rules.staleness_weighted(
        0.1, weights.hinge(a=3.0)
    )
    assert made(name="delay_adaptive", lr=0.1) == rules.delay_adaptive(0.1, workers=4)
    with pytest.raises(ValueError, match=r"rule\.weight\.name: .* 'hinges'; did you mean 'hinge'"):
        made(name="fedasync", weight="hinges")


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: rules.delayed_nesterov(0.1, every=0), "every must be a whole number of at least 1"),
    (lambda: rules.delayed_nesterov(0.1, 4, c=0.3), r"c must be in \[0, 1/every\].* 0.25, got 0.3"),
    (lambda: rules.delayed_nesterov(0.1, 4, c=-0.1), r"c must be in \[0, 1/every\]"),
    (lambda: rules.fedasync(1.5), "alpha must be at most 1"),
    (lambda: unchecked.fedasync(0.5, "hinge"), r"weight must be .*polynomial\(0.5\), got 'hinge'"),
    (lambda: unchecked.staleness_weighted(0.1, 0.5), "weight must be a weight of delays"),
    (lambda: weights.polynomial(-0.5), "a must not be negative"),
    (lambda: weights.hinge(b=-1.0), "b must not be negative"),
    (lambda: rules.delay_adaptive(0.1, 0), "workers must be a whole number of at least 1"),
    (lambda: rules.delay_adaptive(0.1, 2, threshold=0.0), "threshold must be greater than 0"),
    (lambda: rules.pipemare(0.1, updates=0), "updates must be greater than 0"),
    (lambda: rules.schedule_free(0.1, beta=1.1), r"beta must be in \[0, 1\]"),
    (lambda: rules.muon(0.1, momentum=1.0), r"momentum must be in \[0, 1\)"),
    (lambda: rules.muon(0.1, ns_steps=100), "ns_steps must be below 100"),
    (lambda: unchecked.muon(0.1, ns_coefficients=(1.0, 2.0)), "ns_coefficients must be three"),
    (lambda: unchecked.muon(0.1, adjust_lr="rms"), "adjust_lr must be one of 'original'"),
    (lambda: unchecked.muon(0.1, precision="float16"), "precision must be one of 'bfloat16'"),
    (lambda: rules.muon(0.1, adam_lr=0.0), "adam_lr must be greater than 0"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_bad_argument_of_a_newer_rule_is_refused_by_name(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()
