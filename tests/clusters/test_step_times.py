"""Time models: their distributions against theory, and draws by key alone."""

import math
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tardigrad.clusters import (
    Absence,
    Constant,
    Exponential,
    Gamma,
    LogNormal,
    Pareto,
    SeveralSteps,
    Stragglers,
    TimedCluster,
    Trace,
    several_steps,
)
from tardigrad.policies import Sync
from tardigrad.scheduling import schedule

MANY = 20_000


@pytest.fixture(name="trace")
def trace_file(tmp_path: Path) -> str:
    path = tmp_path / "times.csv"
    path.write_text("worker,step_s\n0,1.0\n0,2.0\n1,5.0\n")
    return str(path)


def clusters(trace: str) -> list[TimedCluster]:
    return [
        Gamma(workers=7),
        Gamma(workers=7, heterogeneous=True),
        Constant(workers=7, step_s=2.0),
        Constant(workers=3, step_s=(1.0, 2.0, 3.0)),
        Exponential(workers=7),
        LogNormal(workers=7),
        Pareto(workers=7),
        Stragglers(workers=7),
        Stragglers(workers=7, burst=0.0),
        Trace(path=trace, workers=7),
    ]


def test_a_step_time_depends_on_worker_and_step_alone(trace: str) -> None:
    for cluster in clusters(trace):
        times = cluster.realise(seed=3)
        workers, steps = np.arange(cluster.workers), np.arange(50)
        table = times.step_s(workers[:, None], steps[None, :])
        assert table.shape == (cluster.workers, 50)
        assert (table > 0).all()
        again = cluster.realise(seed=3)
        for worker, step in ((0, 0), (2, 49), (1, 17)):
            assert float(again.step_s(worker, step)) == table[worker, step]
        assert np.array_equal(again.step_s(1, steps), table[1])


def test_another_worker_changes_nobody_elses_times() -> None:
    for make in (Gamma, Exponential, LogNormal, Pareto, Stragglers):
        few = make(workers=3).realise(5).step_s(np.arange(3)[:, None], np.arange(20))
        more = make(workers=9).realise(5).step_s(np.arange(3)[:, None], np.arange(20))
        assert np.array_equal(few, more), make


@pytest.mark.parametrize(
    ("cluster", "over", "share"),
    [
        (Exponential(workers=2, mean_s=3.0), 3.0, math.exp(-1)),
        (Exponential(workers=2, mean_s=3.0), 9.0, math.exp(-3)),
        (Pareto(workers=2, least_s=2.0, exponent=1.5), 8.0, 4**-1.5),
        # P(X > mean) of a lognormal is Φ(−σ/2).
        (
            LogNormal(workers=2, mean_s=4.0, variation=1.0),
            4.0,
            0.5 * math.erfc(0.8326 / 2 / 2**0.5),
        ),
        (Stragglers(workers=2, straggle=0.2, least_extra_s=9.0, burst=0.0), 5.0, 0.2),
    ],
)
def test_tails(cluster: TimedCluster, over: float, share: float) -> None:
    drawn = cluster.realise(1).step_s(1, np.arange(MANY))
    band = 4 * math.sqrt(share * (1 - share) / MANY)
    assert abs((drawn > over).mean() - share) < band


def test_lognormal_has_the_mean_and_variation_asked_for() -> None:
    drawn = LogNormal(workers=1, mean_s=4.0, variation=0.3).realise(0).step_s(0, np.arange(MANY))
    assert abs(drawn.mean() - 4.0) < 4 * 1.2 / math.sqrt(MANY)
    assert abs(drawn.std() / drawn.mean() - 0.3) < 0.01


def test_gamma_tails_are_the_published_ones() -> None:
    """Over 1.25 × the mean: 1% homogeneous (of the realised mean), 27.9% heterogeneous."""
    homogeneous = Gamma(workers=1000).realise(0)
    drawn = homogeneous.step_s(np.arange(1000)[:, None], np.arange(200))
    assert abs((drawn > 1.25 * drawn.mean()).mean() - 0.0099) < 0.001
    heterogeneous = Gamma(workers=40_000, heterogeneous=True).realise(0)
    drawn = heterogeneous.step_s(np.arange(40_000), 0)
    assert abs((drawn > 1.25 * 128).mean() - 0.278) < 4 * math.sqrt(0.278 * 0.722 / 40_000)


def test_stragglers_come_together_where_bursts_are_asked_for() -> None:
    def spread(burst: float) -> float:
        times = Stragglers(workers=100, straggle=0.02, least_extra_s=50, burst=burst).realise(0)
        late = times.step_s(np.arange(100)[:, None], np.arange(4000)) > 25
        return float(late.sum(axis=0).var() / late.sum(axis=0).mean())

    # Poisson counts have variance = mean; with a Γ factor it is mean · (1 + mean · burst²).
    assert abs(spread(0.0) - 1.0) < 0.1
    assert abs(spread(1.0) - 3.0) < 0.4


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Constant(workers=2, step_s=-1.0), "step_s"),
        (lambda: Constant(workers=2, step_s=(1.0,)), "step_s has 1 entries for 2 workers"),
        (lambda: Constant(workers=2, step_s=(1.0, 0.0)), r"step_s\[1\]"),
        (lambda: Constant(workers=0), "workers"),
        (lambda: Exponential(workers=2, mean_s=math.inf), "mean_s"),
        (lambda: LogNormal(workers=2, variation=-0.1), "variation"),
        (lambda: Pareto(workers=2, exponent=0.0), "exponent"),
        (lambda: Stragglers(workers=2, straggle=1.5), "straggle"),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        make()


@pytest.mark.parametrize(
    ("returns_s", "again_s", "told"),
    [
        (9.0, 3.0, r"leaves at 3 s, but by another it is away from 2 s to 9 s"),
        (9.0, 9.0, "leaves at 9 s"),  # which of the two would come first?
        (None, 30.0, "for good"),
    ],
)
def test_a_worker_that_is_away_cannot_leave(
    returns_s: float | None, again_s: float, told: str
) -> None:
    first, again = Absence(1, 2.0, returns_s), Absence(1, again_s, 40.0)
    for absences in ((first, again), (again, Absence(0, 1.0), first)):
        with pytest.raises(ValueError, match=told):
            Constant(workers=2, absences=absences)
    Constant(workers=2, absences=(Absence(1, 2.0, 9.0), Absence(1, 9.1), Absence(0, 3.0, 4.0)))


@pytest.mark.parametrize("each", [2, 7, 150, 700])
@pytest.mark.parametrize(
    "cluster", [Gamma(workers=5, heterogeneous=True), Constant(5, (1.0, 0.2, 0.3, 4.0, 5.0))]
)
def test_steps_of_rows_drawn_in_slices_have_the_same_sums_to_the_bit(
    cluster: TimedCluster, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_steps, "DRAWS", 500)
    workers, rows = np.arange(5)[:, None], np.arange(13)[None, :]
    steps = rows[..., None] * each + np.arange(each)
    at_once = cluster.realise(3).step_s(workers[..., None], steps).sum(axis=-1)
    several = SeveralSteps.of(cluster, each).realise(3)
    assert np.array_equal(several.step_s(workers, rows), at_once)
    assert several.step_s(1, 4) == at_once[1, 4]


def test_many_steps_a_row_take_little_memory() -> None:
    tracemalloc.start()
    schedule(Sync(), Gamma(workers=100), updates=100, batches=200)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100e6  # 2,000,000 draws at once took 240 MB
