"""Staged buffers: the tables that drive them, played through against the exact executor."""

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.core.trees import named
from tardigrad.engine.fast.lookahead import in_stages
from tardigrad.engine.fast.tables import Placement, comes_twice, fits_stages, scalar_table
from tardigrad.engine.kernels import CppKernel, trace
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule

SIZE = 50
DIAGONAL = torch.linspace(0.5, 1.5, SIZE, dtype=torch.float64)


def gradient(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
    return DIAGONAL * torch.sin(view + 0.1 * worker) + 0.01 * step


def staged(schedule: Schedule, rule: Rule, theta: torch.Tensor) -> torch.Tensor:
    """What the GPU does with the tables, one gradient at a time."""
    batches = in_stages(schedule)
    place = Placement(schedule, batches)
    program = trace(rule, theta.dtype)
    kernel = CppKernel(program, theta.dtype)
    states = [t for t in named(rule.start(theta, None), "").values() if t.numel()]  # type: ignore[arg-type]
    own = named(rule.start_own(theta, None), "").values()  # type: ignore[arg-type]
    owns = [t.repeat(schedule.workers, 1) for t in own]
    # NaN wherever nothing was placed: reading it would show.
    views = torch.full((place.size, SIZE), torch.nan, dtype=theta.dtype)
    views[: 2 * place.stage] = theta
    grads = torch.full_like(views, torch.nan)
    table = program.scalars.table(scalar_table(schedule, rule, 1, 0))
    rows = torch.from_numpy(place.rows)
    theta = theta.clone()
    for b in range(batches.count):
        for i, row in enumerate(batches.of(b).tolist()):
            at = (b % 2) * place.stage + i
            grads[at] = gradient(views[at], int(schedule.worker[row]), int(schedule.step[row]))
        begin, end = int(batches.window[b]), int(batches.window[b + 1])
        kernel.run(theta, states, owns, [grads], views, rows, table, begin, end)
        for source, target in place.moves[b].tolist():
            grads[target], views[target] = grads[source], views[source]
        grads[(b % 2) * place.stage :][: place.stage] = torch.nan
    return theta


@pytest.mark.parametrize("rule", ["fasgd", "gap_aware", "dana_ga", "delay_compensated", "adam_sa"])
@pytest.mark.parametrize(
    "cluster",
    [
        tg.Gamma(workers=4),
        tg.Gamma(workers=7, heterogeneous=True),
        tg.Dispatcher(workers=6),
        tg.Gamma(workers=1),
    ],
    ids=["gamma", "heterogeneous", "uniform", "one"],
)
def test_staged_buffers_follow_the_exact_executor(rule: str, cluster: tg.Gamma) -> None:
    theta = torch.linspace(-1, 1, SIZE, dtype=torch.float64)
    schedule = tg.schedule(tg.Async(), cluster, updates=60, seed=3)
    assert fits_stages(schedule) is None
    made = tg.rules.RULES[rule](lr=0.02)
    exact = tg.execute(schedule, tg.FunctionTask(theta, gradient), made, engine="exact")
    assert (staged(schedule, made, theta) - exact.params).abs().max() <= 1e-9


@pytest.mark.parametrize(
    ("policy", "shards", "why"),
    [
        (tg.Async(), 2, "several shards"),
        (tg.Sync(), 1, "groups"),
        (tg.Async(wait=False), 1, None),
        (tg.BoundedDelay(max_delay=3), 1, "read one version"),
    ],
)
def test_what_does_not_fit_is_named(policy: tg.Async, shards: int, why: str | None) -> None:
    schedule = tg.schedule(policy, tg.Gamma(workers=6), updates=50, shards=shards)
    found = fits_stages(schedule)
    assert found is None if why is None else why in str(found)


def test_the_pool_is_no_larger_than_the_workers() -> None:
    schedule = tg.schedule(tg.Async(), tg.Dispatcher(workers=32), updates=2000)
    place = Placement(schedule, in_stages(schedule))
    assert place.size <= 2 * place.stage + 32
    assert np.unique(place.rows[:, 2]).max() < 32


def test_a_worker_that_comes_twice_in_a_window_is_found() -> None:
    once = tg.schedule(tg.Async(), tg.Gamma(workers=6), updates=200)
    twice = tg.schedule(tg.Async(wait=False), tg.Gamma(workers=6), updates=200)
    assert comes_twice(once, in_stages(once)) is None
    assert "twice in one window" in str(comes_twice(twice, in_stages(twice)))
