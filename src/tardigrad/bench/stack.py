"""What stacking a sweep's points on a GPU gains over running them one after another."""

import statistics
from collections.abc import Sequence

from tardigrad.bench.loops import MeasuredLoop, in_turn, machine, perceptron
from tardigrad.clusters import Gamma
from tardigrad.core.checks import count
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.fast.build_stack import stack_on_device
from tardigrad.engine.job import Job
from tardigrad.policies import Async
from tardigrad.rules import fasgd
from tardigrad.scheduling import Schedule, schedule
from tardigrad.tasks import ModuleTask

WORKLOADS = ((1, 128), (8, 16), (128, 250))
REPLICAS = (1, 2, 4, 8, 16)


def bench_stack(
    device: str = "cuda",
    quick: bool = False,
    workloads: Sequence[tuple[int, int]] = WORKLOADS,
    replicas: Sequence[int] = REPLICAS,
    updates: int = 5000,
    repeats: int = 5,
) -> ResultTable:
    """FASGD at several learning rates, stacked as one run on a GPU: time per update of one point.

    Each stack makes `updates` updates of all its points in a slice; slices take turns. A ratio of
    2 is a sweep done in half the time. quick: the first workload, with 1 and 8 points.
    """
    if quick:
        workloads, replicas = workloads[:1], (1, 8)
    for many in replicas:
        count("replicas", many)
    rows: list[tuple[str | float, ...]] = []
    for batch_size, workers in workloads:
        task = perceptron(batch_size, device)
        made = schedule(Async(), Gamma(workers=workers), (repeats + 1) * updates)
        loops = {str(many): _loop(made, task, many) for many in replicas}
        took = in_turn(loops, dict.fromkeys(loops, updates), repeats, device)
        each = {many: statistics.median(took[str(many)]) / many for many in replicas}
        rows += [
            (
                f"μ={batch_size}, λ={workers}, {many} points",
                1e6 * each[many],
                1 / each[many],
                each[replicas[0]] / each[many],
            )
            for many in replicas
        ]
    return ResultTable(
        title=f"Points of a sweep stacked on {machine(device)}, median of {repeats} slices",
        columns=(
            "workload",
            "µs per update of a point",
            "updates per second, all points",
            f"over {replicas[0]}",
        ),
        rows=tuple(rows),
    )


def _loop(made: Schedule, task: ModuleTask, many: int) -> MeasuredLoop:
    rules = [fasgd(lr=0.001 * (1 + i)) for i in range(many)]
    stack = stack_on_device([Job.on_one_shard(made, task, rule) for rule in rules])

    def run(updates: int) -> None:
        until = stack.updates + updates
        while stack.updates < until:
            stack.advance_to(until)

    return run
