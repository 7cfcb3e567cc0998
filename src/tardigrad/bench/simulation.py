"""Updates per second of whole simulations, beside the loops one would write."""

import math
import statistics
from collections.abc import Sequence

from tardigrad.bench.loops import (
    MeasuredLoop,
    NaiveLoop,
    copy_bandwidth,
    engine_loop,
    in_turn,
    machine,
    perceptron,
    plain_loop,
    timed,
)
from tardigrad.clusters import Cluster, Dispatcher, Gamma
from tardigrad.core.result_table import ResultTable
from tardigrad.policies import Async
from tardigrad.rules import fasgd
from tardigrad.scheduling import schedule
from tardigrad.tasks import ModuleTask

Workload = tuple[int, int, str]
"""Batch size μ, workers λ, and whether times are "gamma" or arrivals "uniform"."""
WORKLOADS: tuple[Workload, ...] = (
    (1, 128, "gamma"),
    (4, 32, "gamma"),
    (8, 16, "gamma"),
    (32, 4, "gamma"),
    (128, 250, "gamma"),
    (1, 128, "uniform"),
)
SLICE_S = 0.25
LOOPS = ("plain", "naive", "exact", "fast")


def bench_simulation(
    device: str = "cpu",
    repeats: int = 7,
    workloads: Sequence[Workload] = WORKLOADS,
    slice_s: float = SLICE_S,
) -> ResultTable:
    """FASGD on MNIST's perceptron: updates per second of a plain loop, a naive one, exact, fast.

    plain: one worker, torch.optim.SGD. naive: an asynchronous loop as one would write it, a copy of
    the model per worker. Slices of a quarter of a second take turns; the median is reported.
    """
    bandwidth = copy_bandwidth(device)
    rows: list[tuple[str | float, ...]] = []
    ratios: dict[str, list[float]] = {name: [] for name in LOOPS[:-1]}
    for batch_size, workers, times in workloads:
        task = perceptron(batch_size, device)
        rate = _rates(task, workers, times, repeats, slice_s)
        moved = 4 * task.layout.size * task.start().element_size() * rate["fast"]
        for name, found in ratios.items():
            found.append(rate["fast"] / rate[name])
        rows.append(
            (
                f"μ={batch_size}, λ={workers}, {times}",
                *(rate[name] for name in LOOPS),
                *(found[-1] for found in ratios.values()),
                moved / bandwidth,
            )
        )
    return ResultTable(
        title=f"Updates per second on {machine(device)}, median of {repeats} slices",
        columns=(
            "workload",
            *LOOPS,
            *(f"fast ÷ {name}" for name in ratios),
            "bandwidth",
        ),
        rows=tuple(rows),
        notes=(
            "geometric means of fast ÷: "
            + ", ".join(f"{name} {_mean(found):.2f}" for name, found in ratios.items()),
            f"bandwidth: what reading a view, writing and reading its gradient and writing the "
            f"next view move, as a part of a copy's {bandwidth / 1e9:.0f} GB/s",
        ),
    )


def _rates(
    task: ModuleTask, workers: int, times: str, repeats: int, slice_s: float
) -> dict[str, float]:
    cluster: Cluster = Gamma(workers=workers) if times == "gamma" else Dispatcher(workers=workers)
    device, rule = task.device.type, fasgd(lr=0.005)
    made = schedule(Async(), cluster, 20_000)
    order = made.worker[made.group_rows].tolist()
    loops: dict[str, MeasuredLoop] = {
        "plain": plain_loop(task),
        "naive": NaiveLoop(task, order, workers),
        "exact": engine_loop(made, task, rule, "exact"),
    }
    # The fast engine needs a schedule long enough for all its slices: a first, short one tells.
    probe = engine_loop(made, task, rule, "fast")
    probe(4000)
    speed = 4000 / timed(lambda: probe(4000), device)
    enough = schedule(Async(), cluster, int(2 * (repeats + 1) * slice_s * speed) + 8000)
    loops["fast"] = engine_loop(enough, task, rule, "fast")
    updates = {}
    for name, loop in loops.items():
        loop(50)
        updates[name] = max(20, int(slice_s * 50 / timed(lambda loop=loop: loop(50), device)))  # type: ignore[misc]
    updates["fast"] = int(slice_s * speed)
    updates["exact"] = min(updates["exact"], 19_000 // (repeats + 1))
    took = in_turn(loops, updates, repeats, device)
    return {name: 1 / statistics.median(took[name]) for name in loops}


def _mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))
