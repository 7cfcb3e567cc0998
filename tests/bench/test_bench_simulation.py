"""The benchmark of simulations: its loops do what they say, and its table holds together."""

import pytest
import torch

from tardigrad.bench.loops import NaiveLoop, perceptron
from tardigrad.bench.simulation import LOOPS, bench_simulation
from tardigrad.clusters import Gamma
from tardigrad.engine import execute
from tardigrad.policies import Async
from tardigrad.rules import fasgd
from tardigrad.scheduling import schedule


def test_the_table_holds_together() -> None:
    found = bench_simulation(repeats=1, workloads=[(2, 4, "gamma")], slice_s=0.01)
    (row,) = found.data()["rows"]
    assert all(row[name] > 0 for name in LOOPS)
    for name in LOOPS[:-1]:
        assert row[f"fast ÷ {name}"] == pytest.approx(row["fast"] / row[name])
    assert 0 < row["bandwidth"] < 10


def test_the_naive_loop_is_fasgd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fed the same samples, it ends where the engine ends."""
    task = perceptron(2, "cpu", "float64")
    made = schedule(Async(), Gamma(workers=3), 12)
    rows = made.group_rows
    workers, steps = made.worker[rows], made.step[rows]
    chosen = iter(task.indices_of(workers, steps, rows))
    monkeypatch.setattr(torch, "randint", lambda *size, **options: next(chosen))
    naive = NaiveLoop(task, workers.tolist(), 3)
    naive(12)
    ours = torch.cat([t.flatten() for t in naive.server])
    theirs = execute(made, task, fasgd(lr=0.005), "exact").params
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
