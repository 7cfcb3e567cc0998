"""How time per update and memory grow with the number of workers."""

import multiprocessing
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tardigrad.bench.loops import engine_loop, machine, per_update, perceptron
from tardigrad.clusters import Gamma
from tardigrad.core.checks import count, require
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.fast.batches import just_in_time
from tardigrad.engine.fast.build_on_cpu import MOST, suitable_chunk
from tardigrad.engine.fast.gradients import padded
from tardigrad.engine.fast.view_places import in_blocks_or_slots
from tardigrad.engine.job import Job
from tardigrad.engine.memory import amount, machine_bytes, predicted_bytes
from tardigrad.policies import Async
from tardigrad.rules import fasgd
from tardigrad.scheduling import Schedule, schedule
from tardigrad.tasks import ModuleTask

WORKERS = (10, 100, 1000, 10_000)
BASE = 100
MIB = 2**20
RULE = fasgd(lr=0.005)


def bench_growth(
    quick: bool = False,
    workers: Sequence[int] = WORKERS,
    batch_size: int = 4,
    updates: int = 1000,
    repeats: int = 7,
) -> ResultTable:
    """FASGD on MNIST's perceptron with 10 to 10,000 workers: time per update, and peak memory.

    Each number of workers has a process of its own, and slices of `updates` updates take turns
    between them, once every worker has come. Memory is the process's peak (VmHWM)
    less what it held before the schedule and the run were made, by when it had compiled all it
    needs. quick: at most 1,000 workers.
    """
    if quick:
        workers = [many for many in workers if many <= 1000]
    for many in workers:
        count("workers", many)
    base = BASE if BASE in workers else min(workers)
    require(Path("/proc/self/status").exists(), "peak memory is read from /proc, so needs Linux")
    left = machine_bytes(perceptron(1, "cpu").device)[0]
    need = sum(workers) * 4 * perceptron(1, "cpu").layout.size
    require(
        need <= left,
        f"the views of all workers alone take {amount(need)}, and there are {amount(left)}: "
        "use --quick",
    )
    asked: list[tuple[int, Connection]] = []
    took: dict[int, list[float]] = {many: [] for many in workers}
    with _processes() as start:
        for many in workers:
            asked.append((many, start(many, batch_size, updates, repeats)))
        predicted = {many: there.recv() for many, there in asked}
        for _, there in asked:
            refused = there.recv()
            if refused is not None:
                raise refused
        for _ in range(repeats):
            for many, there in asked:
                there.send("slice")
                took[many].append(there.recv())
        peak = {}
        for many, there in asked:
            there.send("end")
            peak[many] = there.recv()
    rows = tuple(
        (
            f"λ={many:,}",
            1e6 * statistics.median(took[many]),
            statistics.median(a / b for a, b in zip(took[many], took[base], strict=True)),
            peak[many] / MIB,
            predicted[many] / MIB,
            peak[many] / MIB / many,
        )
        for many in workers
    )
    return ResultTable(
        title=f"μ={batch_size}, on {machine('cpu')}, median of {repeats} slices of {updates:,} "
        "updates",
        columns=(
            "workers",
            "µs per update",
            f"÷ λ={base}",
            "peak MiB",
            "predicted MiB",
            "peak MiB per worker",
        ),
        rows=rows,
        notes=(
            f"one view is {4 * perceptron(1, 'cpu').layout.size / MIB:.3f} MiB; peak: VmHWM less "
            "what was resident before the schedule and the run were made",
        ),
    )


@contextmanager
def _processes() -> Iterator[Any]:
    """Starts processes, each behind a pipe; all end with the block."""
    context = multiprocessing.get_context("spawn")
    running = []

    def start(*arguments: int) -> Connection:
        here, there = context.Pipe()
        process = context.Process(target=_one, args=(there, *arguments), daemon=True)
        process.start()
        there.close()
        running.append(process)
        return here

    try:
        yield start
    finally:
        for process in running:
            process.terminate()
            process.join()


def _one(asked: Connection, workers: int, batch_size: int, updates: int, repeats: int) -> None:
    """In its own process: the predicted peak, then seconds for every "slice", the peak at "end"."""
    task = perceptron(batch_size, "cpu")
    engine_loop(_schedule(min(workers, 1000), 2000), task, RULE, "fast")(2000)
    before = _status("VmRSS")
    _forget_peak()
    warm = 3 * workers + updates
    made = _schedule(workers, warm + (repeats + 1) * (updates + MOST))
    asked.send(_predicted(made, task))
    try:
        run = engine_loop(made, task, RULE, "fast")
    except ValueError as error:  # it does not fit
        asked.send(error)
        return
    run(warm)
    require(len(np.unique(made.worker[made.group_rows[:warm]])) == workers, "a worker never came")
    asked.send(None)
    while asked.recv() == "slice":
        asked.send(per_update(run, updates, "cpu"))
    asked.send(_status("VmHWM") - before)


def _schedule(workers: int, updates: int) -> Schedule:
    return schedule(Async(), Gamma(workers=workers), updates)


def _predicted(made: Schedule, task: ModuleTask) -> int:
    """What the engine itself asks before it starts."""
    batches = just_in_time(made, suitable_chunk(task.start()))
    theta = task.start()
    places = in_blocks_or_slots(made, batches, padded(len(theta)) * theta.element_size())
    rows = [places.count + batches.largest]
    return predicted_bytes(Job.on_one_shard(made, task, RULE), rows, batches.largest)


def _status(field: str) -> int:
    """Bytes, of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status does not tell {field}")


def _forget_peak() -> None:
    """Set VmHWM back to what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
