"""The same limits in parameters: what the schedules mean once gradients are computed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad import rules
from tardigrad.rules import Rule
from tardigrad.tasks.quadratic import quadratic

ELEMENTWISE: dict[str, Callable[[float], Rule]] = {
    "sgd": rules.sgd,
    "nag": lambda lr: rules.sgd(lr, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": rules.adam,
    "rmsprop": lambda lr: rules.rmsprop(lr, momentum=0.9),
    "adagrad": rules.adagrad,
    "fasgd": rules.fasgd,
    "staleness_aware": lambda lr: rules.staleness_aware(lr, momentum=0.5),
    "delay_compensated": rules.delay_compensated,
    "gap_aware": lambda lr: rules.gap_aware(lr, momentum=0.9),
    "dana": lambda lr: rules.dana(lr, momentum=0.5),
}
LARGE_BATCH = [name for name in ELEMENTWISE if name != "dana"]  # dana has momentum per worker


@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()], ids=["async", "sync"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_shards_are_one_shard_bitwise(name: str, policy: tg.policies.Policy) -> None:
    task, rule = quadratic(dimension=23, noise=0.1), ELEMENTWISE[name](0.01)
    whole, *parts = (
        tg.simulate(task, rule, policy, tg.Gamma(workers=4), updates=40, shards=m, engine="exact")
        for m in (1, 2, 7, 23)
    )
    assert not torch.equal(whole.params, task.start())
    for part in parts:
        assert torch.equal(part.params, whole.params)


def test_partial_of_all_is_sync_with_the_rate_times_the_workers() -> None:
    task = quadratic(dimension=10, noise=0.1, dtype="float64")
    cluster = tg.Gamma(workers=4)
    for shards in (1, 3):
        partial, scaled = (
            tg.simulate(task, rules.sgd(lr, momentum=0.9), policy, cluster, 50, shards=shards)
            for policy, lr in ((tg.Partial(), 0.01), (tg.Sync(), 0.04))
        )
        assert torch.equal(partial.params, scaled.params)


class _Regression:
    """Least squares; step s of worker w takes samples μ(λ s + w) … of one long list."""

    def __init__(self, workers: int, batch: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(4000, 6, generator=generator, dtype=torch.float64)
        self.targets = torch.randn(4000, generator=generator, dtype=torch.float64)
        self.workers, self.batch = workers, batch

    def __call__(self, view: Tensor, worker: int, step: int) -> Tensor:
        first = self.batch * (self.workers * step + worker)
        x, y = (data[first : first + self.batch] for data in (self.inputs, self.targets))
        return x.T @ (x @ view - y) / self.batch


@pytest.mark.parametrize("name", LARGE_BATCH)
def test_sync_workers_are_one_worker_with_a_larger_batch(name: str) -> None:
    start = torch.linspace(-1, 1, 6, dtype=torch.float64)
    rule = ELEMENTWISE[name](0.02)
    many, one = (
        tg.simulate(
            tg.FunctionTask(start, _Regression(workers, batch)),
            rule,
            tg.Sync(),
            tg.Gamma(workers=workers),
            updates=100,
        ).params
        for workers, batch in ((5, 8), (1, 40))
    )
    assert (many - start).abs().max() > 0.01
    torch.testing.assert_close(many, one, rtol=0, atol=1e-12)
