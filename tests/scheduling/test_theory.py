"""What theory says of asynchronous schedules, measured: delays, tails, stability."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.clusters import Cluster, Constant

UPDATES = 20_000


@pytest.mark.parametrize(
    "cluster",
    [
        tg.Gamma(workers=1),
        tg.Gamma(workers=2),
        tg.Gamma(workers=16),
        tg.Gamma(workers=16, heterogeneous=True),
        tg.Dispatcher(workers=8),
        tg.Dispatcher(workers=4, weights=(8.0, 4.0, 2.0, 1.0)),
        Constant(workers=5, step_s=(1.0, 1.7, 2.0, 3.1, 9.0)),
    ],
    ids=repr,
)
def test_mean_delay_is_one_less_than_the_workers(cluster: Cluster) -> None:
    """Every update delays the N − 1 gradients in flight by one: whatever the speeds, the delays of
    all gradients, those still in flight included, add up to updates × (N − 1)."""
    made = tg.schedule(tg.Async(), cluster, UPDATES, seed=5)
    n = cluster.workers
    flying = np.setdiff1d(np.arange(made.rows), made.group_rows)
    assert len(flying) == n
    in_flight = (UPDATES - made.read[flying, 0]).sum()
    assert made.delays.sum() + in_flight == UPDATES * (n - 1)
    # In flight are N rows, of about N − 1 each on average; slow workers hold more.
    assert made.delays.mean() == pytest.approx(n - 1, abs=20 * n * n / UPDATES)


def test_not_waiting_for_ones_own_push_costs_one_more() -> None:
    made = tg.schedule(tg.Async(wait=False), tg.Gamma(workers=6), UPDATES)
    assert made.delays.mean() == pytest.approx(6, abs=0.02)
    assert made.delays[100:].min() >= 1


def test_the_dispatchers_delays_are_geometric() -> None:
    """A worker drawn with chance 1/N each time: P(delay = k) = (1 − 1/N)^k / N."""
    n = 5
    made = tg.schedule(tg.Async(), tg.Dispatcher(workers=n), UPDATES, seed=1)
    for k in range(8):
        chance = (1 - 1 / n) ** k / n
        band = 5 * math.sqrt(chance * (1 - chance) / UPDATES)
        assert (made.delays == k).mean() == pytest.approx(chance, abs=band)


def test_synchronous_steps_have_no_delay_and_cost_the_slowest() -> None:
    made = tg.schedule(tg.Sync(), tg.Gamma(workers=8), 500)
    assert not made.delays.any()
    took = (made.end_s - made.start_s)[: 500 * 8].reshape(500, 8)
    assert made.end_time == pytest.approx(took.max(axis=1).sum(), rel=1e-12)


def test_homogeneous_tail_is_one_percent() -> None:
    """Against the realised q. For whole shapes P(Γ(k) > x) = P(Poisson(x) < k), exactly: with
    k = 1/V² = 100 and x = 1.25 k that is 0.94%, the paper's 1%."""
    expected = sum(math.exp(k * math.log(125) - 125 - math.lgamma(k + 1)) for k in range(100))
    assert expected == pytest.approx(0.0094, abs=5e-5)
    for seed in (0, 1):
        drawn = tg.Gamma(workers=200).realise(seed).step_s(np.arange(200)[:, None], np.arange(2000))
        share = (drawn > 1.25 * drawn.mean()).mean()
        assert share == pytest.approx(expected, abs=5 * math.sqrt(expected / drawn.size))


def test_homogeneous_tail_pooled_over_runs() -> None:
    """Against μ instead of the realised q it is 4.8%."""
    shares = [
        (tg.Gamma(workers=40, mean_s=1.0).realise(seed).step_s(np.arange(40), 0) > 1.25).mean()
        for seed in range(3000)
    ]
    band = 5 * float(np.std(shares)) / math.sqrt(len(shares))
    assert band < 0.01
    assert np.mean(shares) == pytest.approx(0.048, abs=band)


def test_heterogeneous_tail_is_28_percent() -> None:
    """Over machines and steps, as published: 27.9%."""
    workers = 100_000
    times = tg.Gamma(workers=workers, heterogeneous=True, mean_s=1.0).realise(0)
    drawn = times.step_s(np.arange(workers), 0)
    band = 5 * math.sqrt(0.279 * 0.721 / workers)
    assert (drawn > 1.25).mean() == pytest.approx(0.279, abs=band)
    assert drawn.mean() == pytest.approx(1.0, abs=5 * 0.61 / math.sqrt(workers))


def distances(workers: int, step: float, updates: int) -> np.ndarray:
    """|θ| over updates of θ ← θ − step · view, workers taking turns: the delay is constant."""
    seen: list[float] = []

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        seen.append(float(view.abs()))
        return view

    order = [w for _ in range(updates // workers) for w in range(workers)]
    made = tg.Schedule.from_order(order, workers)
    assert (made.delays[workers:] == workers - 1).all()
    task = tg.FunctionTask(torch.ones(1, dtype=torch.float64), grad)
    tg.execute(made, task, tg.rules.sgd(step), engine="exact")
    return np.array(seen)


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_stability_bound_of_delayed_gradient_descent(workers: int) -> None:
    """θ_{k+1} = θ_k − η a θ_{k−d} is stable exactly where η a < 2 sin(π / (2 (2d + 1)))."""
    delay = workers - 1
    bound = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    below = distances(workers, 0.98 * bound, 2400)
    above = distances(workers, 1.02 * bound, 2400)
    assert below[-200:].max() < 0.1 * below[200:400].max()
    assert above[-200:].max() > 10 * above[200:400].max()
