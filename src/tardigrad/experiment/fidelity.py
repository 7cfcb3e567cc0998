"""How well the simulation predicts real runs: several policies under several laws of step times.

Workers on Ray keep the imposed times, mostly asleep. Each cell is a run of its own folder, so a
comparison that was interrupted goes on with the cells that are missing.

There are two predictions. One has the imposed step times, and messages that take what the run's
took on average. But a machine that has other work does not let every step end in time; so the other
has the step times that the run's workers came to, step by step. It tests the model of policy and
messages alone, and its delays and waiting are the ones told.
"""

import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tardigrad.clusters import Network, StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import require
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.experiment.real import message_s, run_on_ray
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.spec_data import Table, differences
from tardigrad.recording.folder import RunFolder
from tardigrad.scheduling import Schedule, schedule
from tardigrad.scheduling.analysis import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tardigrad.runtime import ActorPool


WORKERS = 4
STEP_S = 0.08
"""The mean of most laws: long beside what a message takes."""
CELL_S = 15.0
POLICIES: dict[str, Table] = {
    "async": {"name": "async"},
    "sync": {"name": "sync"},
    "backup 1": {"name": "backup", "backups": 1},
    "softsync 2": {"name": "soft_sync", "groups": 2},
    "stale-synchronous 2": {"name": "stale_synchronous", "bound": 2},
}
TIMES: dict[str, Table] = {
    "one slow": {"name": "constant", "step_s": [STEP_S, 1.05 * STEP_S, 1.1 * STEP_S, 2 * STEP_S]},
    "gamma": {"name": "gamma", "mean_s": STEP_S},
    "heavy tail": {"name": "pareto", "least_s": 0.6 * STEP_S, "exponent": 2.5},
}
"""The slow worker's peers differ a little: who comes first of two that come together is chance."""
QUANTILES = (0.5, 0.9, 0.99)
RATE_WITHIN, DELAY_WITHIN = 0.05, 0.10
"""What is wanted of predicted throughput and of predicted quantiles of the delay."""
TABLE, FIGURE = "fidelity.csv", "fidelity.png"


Delays = tuple[tuple[float, float], ...]


def delay_error(delays: Delays) -> float:
    """The largest, of all quantiles."""
    return max(abs(p - m) / max(1.0, m) for p, m in delays)


@dataclass(frozen=True)
class FidelityCell:
    """One policy under one law, predicted and measured."""

    policy: str
    times: str
    imposed: Summary
    """Predicted at the imposed step times;"""
    predicted: Summary
    """and at those that workers came to."""
    measured: Summary
    imposed_delays: Delays
    delays: Delays
    """(predicted, measured) quantiles, by the one prediction and the other."""
    message_s: float

    @property
    def rate_error(self) -> float:
        return self.predicted.gradients_per_s / self.measured.gradients_per_s - 1

    @property
    def imposed_error(self) -> float:
        return self.imposed.gradients_per_s / self.measured.gradients_per_s - 1


def compare_real_all(
    path: str | Path,
    address: str | None = None,
    seconds: float = CELL_S,
    pool: "ActorPool | None" = None,
    tell: Callable[[str], None] = lambda text: None,
    policies: Sequence[str] = tuple(POLICIES),
    times: Sequence[str] = tuple(TIMES),
) -> ResultTable:
    """Every policy under every law, in a folder each; a table, its CSV and a figure beside them."""
    path = Path(path)
    require(not path.exists() or path.is_dir(), f"{path} is no folder: write elsewhere (--out DIR)")
    cells = []
    with ExitStack() as stack:

        @cache
        def actors() -> "ActorPool":
            """Ray is started where there is something to run."""
            return stack.enter_context(_pool(address, pool))

        for number, (policy, law) in enumerate((p, t) for p in policies for t in times):
            cell = _cell(policy, law, path, seconds, actors)
            cells.append(cell)
            tell(
                f"{number + 1} of {len(policies) * len(times)}: {policy}, {law}: "
                f"{cell.measured.gradients_per_s:.1f} gradients/s, predicted "
                f"{cell.predicted.gradients_per_s:.1f} ({cell.rate_error:+.1%}; "
                f"from the imposed times {cell.imposed_error:+.1%})"
            )
    found = _table(cells)
    found.save_csv(path / TABLE)
    _figure(found.title, cells).savefig(path / FIGURE, dpi=150)
    return replace(found, figures=(path / FIGURE,))


@contextmanager
def _pool(address: str | None, pool: "ActorPool | None") -> "Iterator[ActorPool]":
    from tardigrad.runtime import ActorPool
    from tardigrad.runtime.ray_cluster import connected

    if pool is not None:
        yield pool
        return
    with connected(address, WORKERS + 1) as cpus, ActorPool(cpus) as own:
        yield own


def _spec(policy: str, times: str, seconds: float) -> Spec:
    """As many updates as are predicted for so long."""
    spec = Spec(
        updates=100,
        task={"name": "logistic_regression"},
        rule={"name": "sgd", "lr": 0.01},
        policy=dict(POLICIES[policy]),
        cluster={**TIMES[times], "workers": WORKERS},
        evaluate_every=0,
        checkpoint_every=0,
    )
    return replace(spec, updates=max(10, round(seconds * Summary.of(_made(spec)).updates_per_s)))


def _made(spec: Spec) -> Schedule:
    schedule = spec.make_schedule()
    assert schedule is not None  # there is no link
    return schedule


def _cell(
    policy: str, times: str, path: Path, seconds: float, pool: "Callable[[], ActorPool]"
) -> FidelityCell:
    spec = _spec(policy, times, seconds)
    measured = _measured(spec, path / f"{policy}, {times}".replace(" ", "-"), pool)
    took_s = message_s(measured)
    imposed = _made(replace(spec, cluster={**spec.cluster, "network": {"latency_s": took_s}}))
    kept = AsKept(spec.make_cluster(), measured, took_s)
    predicted = schedule(spec.make_policy(), kept, spec.updates, seed=spec.seed)
    made = [np.quantile(one.delays, QUANTILES).tolist() for one in (imposed, predicted, measured)]
    by_imposed, by_kept = (tuple(zip(one, made[-1], strict=True)) for one in made[:2])
    first, second, real = (Summary.of(one) for one in (imposed, predicted, measured))
    return FidelityCell(policy, times, first, second, real, by_imposed, by_kept, took_s)


class AsKept(TimedCluster):
    """Imposed step times as a run's workers came to keep them."""

    workers = WORKERS

    def __init__(self, imposed: Any, measured: Schedule, message_s: float) -> None:
        super().__init__(network=Network(latency_s=message_s))
        self.__dict__["_source"] = imposed, measured  # itself it is frozen

    def realise(self, seed: int) -> StepTimes:
        imposed, measured = self.__dict__["_source"]
        return _KeptTimes(imposed.realise(seed), measured)


class _KeptTimes(StepTimes):
    """Those that the run did not come to are the imposed ones; one that it did not finish lasts at
    least until its end."""

    def __init__(self, imposed: StepTimes, measured: Schedule) -> None:
        self._imposed = imposed
        unfinished = np.isnan(measured.end_s)
        until_s = np.where(unfinished, measured.end_time, measured.end_s)
        took = until_s - measured.start_s
        rows = np.stack([measured.worker, measured.step], axis=1)[unfinished]
        self._open = {tuple(pair) for pair in rows.tolist()}
        self._took = np.full((measured.workers, int(measured.step.max()) + 1), np.nan)
        self._took[measured.worker, measured.step] = took

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        imposed = self._imposed.step_s(workers, steps)
        who, which = np.broadcast_arrays(workers, steps)
        last = self._took.shape[1] - 1
        took = np.where(which > last, np.nan, self._took[who, np.minimum(which, last)])
        pairs = zip(who.ravel().tolist(), which.ravel().tolist(), strict=True)
        open_ = np.array([pair in self._open for pair in pairs]).reshape(who.shape)
        took = np.where(open_, np.maximum(imposed, took), took)
        return np.where(np.isnan(took), imposed, took)


def _measured(spec: Spec, path: Path, pool: "Callable[[], ActorPool]") -> Schedule:
    """What is there, or else is run now. One that was interrupted is run again as a whole: its
    clock went on."""
    if path.exists():
        folder = RunFolder.open(path)
        different = differences(folder.spec(), tomllib.loads(spec.toml()))
        require(
            not different,
            f"{path} holds a run with another {', '.join(different)}: write elsewhere (--out DIR)",
        )
        if folder.summary().get("status") == "finished":
            return folder.schedule()
        shutil.rmtree(path)
    return run_on_ray(spec, path, impose=True, pool=pool()).schedule


def _table(cells: Sequence[FidelityCell]) -> ResultTable:
    percents = [f"{q:.0%}" for q in QUANTILES]
    rows: list[tuple[Cell, ...]] = []
    for cell in cells:
        p, m = cell.predicted, cell.measured
        delays = [value for pair in cell.delays for value in pair]
        rows.append(
            (
                cell.policy,
                cell.times,
                cell.imposed.gradients_per_s,
                p.gradients_per_s,
                m.gradients_per_s,
                f"{cell.imposed_error:+.1%}",
                f"{cell.rate_error:+.1%}",
                p.waiting,
                m.waiting,
                p.delay.mean,
                m.delay.mean,
                *delays,
                1000 * cell.message_s,
            )
        )
    near = sum(abs(cell.rate_error) <= RATE_WITHIN for cell in cells)
    imposed = sum(abs(cell.imposed_error) <= RATE_WITHIN for cell in cells)
    late = sum(delay_error(cell.delays) <= DELAY_WITHIN for cell in cells)
    imposed_late = sum(delay_error(cell.imposed_delays) <= DELAY_WITHIN for cell in cells)
    return ResultTable(
        title="predicted by the simulation, measured on Ray",
        columns=(
            "policy",
            "step times",
            "gradients/s, imposed",
            "as kept",
            "measured",
            "imposed off",
            "as kept off",
            "waiting",
            "waiting, measured",
            "mean delay",
            "mean delay, measured",
            *(f"{q} delay{said}" for q in percents for said in ("", ", measured")),
            "message (ms)",
        ),
        rows=tuple(rows),
        notes=(
            f"throughput predicted within {RATE_WITHIN:.0%} in {near} of {len(cells)} (from the "
            f"imposed step times in {imposed}); all delay quantiles within {DELAY_WITHIN:.0%} (a "
            f"delay under 1: within {DELAY_WITHIN:g}) in {late} (in {imposed_late})",
            f"{WORKERS} workers that mostly sleep, one shard; predicted from the step times that "
            "were imposed, and as workers came to keep them, both with messages that take what the "
            "run's took on average",
        ),
        keys=2,
    )


def _figure(title: str, cells: Sequence[FidelityCell]) -> "Figure":
    from tardigrad.report.fidelity_figure import fidelity_figure

    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for cell in cells:
        p, m = cell.predicted, cell.measured
        quantities = {
            "gradients per second": [(p.gradients_per_s, m.gradients_per_s)],
            "share of time waiting": [(p.waiting, m.waiting)],
            "delay (50, 90, 99%)": list(cell.delays),
        }
        for quantity, pairs in quantities.items():
            panels.setdefault(quantity, {}).setdefault(cell.policy, []).extend(pairs)
    return fidelity_figure(title, panels, RATE_WITHIN)
