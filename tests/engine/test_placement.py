"""Staged buffers: the tables that drive them, played through against the exact executor."""

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.core.trees import named
from tardigrad.engine.fast.batches import look_ahead
from tardigrad.engine.fast.coefficients import scalar_table
from tardigrad.engine.fast.requirements import comes_twice, why_not_staged
from tardigrad.engine.fast.view_places import in_stages
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import CppKernel, trace
from tardigrad.engine.kernels.pieces import PieceShape

SIZE = 50
DIAGONAL = torch.linspace(0.5, 1.5, SIZE, dtype=torch.float64)


def gradient(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
    return DIAGONAL * torch.sin(view + 0.1 * worker) + 0.01 * step


def staged(job: Job) -> torch.Tensor:
    """What the GPU does with the tables, one gradient at a time."""
    schedule, rule, theta = job.schedule, job.rule, job.task.start()
    batches = look_ahead(schedule)
    place, stage = in_stages(schedule, batches), batches.largest
    program = trace(rule, theta.dtype)
    states = [t for t in named(rule.start(theta, None), "").values() if t.numel()]  # type: ignore[arg-type]
    own = named(rule.start_own(theta, None), "").values()  # type: ignore[arg-type]
    owns = [t.repeat(schedule.workers, 1) for t in own]
    # NaN wherever nothing was placed: reading it would show.
    views = torch.full((place.count, SIZE), torch.nan, dtype=theta.dtype)
    views[: 2 * stage] = theta
    grads = torch.full_like(views, torch.nan)
    table = program.scalars.table(scalar_table(job))
    rows = place.table.on(theta.device)
    theta = theta.clone()
    kernel = CppKernel(program, theta.dtype)
    windows = kernel.bound(theta, states, owns, [PieceShape(SIZE, SIZE)], views, rows, table)
    for b in range(batches.count):
        for i, row in enumerate(batches.of(b).tolist()):
            at = (b % 2) * stage + i
            grads[at] = gradient(views[at], int(schedule.worker[row]), int(schedule.step[row]))
        begin, end = int(batches.window[b]), int(batches.window[b + 1])
        windows.run([grads], begin, end)
        for source, target in place.moves[b].tolist():
            grads[target], views[target] = grads[source], views[source]
        grads[(b % 2) * stage :][:stage] = torch.nan
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
    assert why_not_staged(schedule) is None
    made = tg.rules.RULES[rule](lr=0.02)
    job = Job.on_one_shard(schedule, tg.FunctionTask(theta, gradient), made)
    exact = tg.execute(schedule, job.task, made, engine="exact")
    assert (staged(job) - exact.params).abs().max() <= 1e-9


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
    found = why_not_staged(schedule)
    assert found is None if why is None else why in str(found)


def test_the_pool_is_no_larger_than_the_workers() -> None:
    schedule = tg.schedule(tg.Async(), tg.Dispatcher(workers=32), updates=2000)
    batches = look_ahead(schedule)
    place = in_stages(schedule, batches)
    assert place.count <= 2 * batches.largest + 32
    assert np.unique(place.table.own).max() < 32


def test_a_worker_that_comes_twice_in_a_window_is_found() -> None:
    once = tg.schedule(tg.Async(), tg.Gamma(workers=6), updates=200)
    twice = tg.schedule(tg.Async(wait=False), tg.Gamma(workers=6), updates=200)
    assert comes_twice(once, look_ahead(once)) is None
    assert "twice in one window" in str(comes_twice(twice, look_ahead(twice)))
