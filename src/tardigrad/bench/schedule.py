"""Gradients per second of schedules alone: closed forms, the event loop, and SimPy."""

import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from tardigrad.clusters import Gamma, StepTimes
from tardigrad.core.arrays import Floats
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.planning.measure import label
from tardigrad.policies import (
    Async,
    Backup,
    BoundedDelay,
    Partial,
    Policy,
    SoftSync,
    StaleSynchronous,
    Sync,
)
from tardigrad.scheduling import Schedule, schedule

WORKERS = (1000, 10_000, 100_000)
GRADIENTS = 200_000
LEAST_STEPS = 10
"""Of each worker, on average: else a schedule is mostly its beginning."""


def bench_schedule(
    workers: Sequence[int] = WORKERS, gradients: int = GRADIENTS, repeats: int = 3
) -> ResultTable:
    """Applied gradients per second of processor time, on the same step times.

    SimPy has one process per worker, which takes a timeout per gradient and writes down worker,
    version read, start and end, as the schedule does. That is `Async`, and the least that a policy
    needs: every other is held against it too. The event loop makes `Async` for every number of
    workers, and every policy for the first. Step times are drawn beforehand; runs take turns, and
    the median is reported.
    """
    simpy_arrivals = _with_simpy()
    took: dict[tuple[int, str, str], list[float]] = {}
    for _ in range(repeats):
        for n in workers:
            asked = max(gradients, LEAST_STEPS * n)
            cluster = _Drawn(workers=n, steps=_enough_steps(n, asked))
            drawn = cluster.times().tolist()
            arrived: list[tuple[int, int, float, float]] = []
            each_s = _seconds(lambda: arrived.extend(simpy_arrivals(drawn, asked))) / asked  # noqa: B023
            took.setdefault((n, "", "simpy"), []).append(each_s)
            for policy, size in _policies(n):
                ways = {"closed": True}
                if isinstance(policy, Async) or n == workers[0]:
                    ways["loop"] = False
                made: list[Schedule] = []
                for name, bulk in ways.items():
                    each_s = _seconds(
                        lambda: made.append(schedule(policy, cluster, asked // size, bulk=bulk))  # noqa: B023
                    ) / len(made[-1].group_rows)
                    took.setdefault((n, label(policy), name), []).append(each_s)
                check_same(made, arrived if isinstance(policy, Async) else None)
    rate = {where: 1 / statistics.median(times) for where, times in took.items()}
    return ResultTable(
        title=f"Gradients per second: {gradients:,} of them, at least {LEAST_STEPS} a worker, "
        f"median of {repeats} runs",
        columns=("workers", "policy", "closed form", "event loop", "SimPy", "form ÷", "loop ÷"),
        rows=tuple(_row(rate, n, label(policy)) for n in workers for policy, _ in _policies(n)),
        notes=(
            "÷: against SimPy, which makes asynchronous arrivals; SoftSync(groups=…) has no closed "
            "form, but makes many groups at a time",
            *_growth(rate, workers[0], workers[-1]),
        ),
        keys=2,
    )


def _policies(workers: int) -> list[tuple[Policy, int]]:
    """Every policy that has a closed form, and how many gradients are in an update."""
    spared, few = max(1, workers // 20), max(1, workers // 4)
    return [
        (Async(), 1),
        (Sync(), workers),
        (Backup(spared), workers - spared),
        (Partial(push=workers - spared), workers - spared),
        (SoftSync(groups=few, wait=False), workers // few),
        (SoftSync(groups=few), workers // few),
        (StaleSynchronous(bound=3), 1),
        (BoundedDelay(max_delay=2 * workers), 1),
        (BoundedDelay(max_delay=workers), 1),
    ]


def _row(rate: dict[tuple[int, str, str], float], workers: int, policy: str) -> tuple[Cell, ...]:
    simpy = rate[workers, "", "simpy"]
    closed, loop = rate[workers, policy, "closed"], rate.get((workers, policy, "loop"))
    return workers, policy, closed, loop, simpy, closed / simpy, loop and loop / simpy


def _growth(rate: dict[tuple[int, str, str], float], first: int, last: int) -> list[str]:
    """How the cost of a gradient grows with the workers."""
    grown = []
    for (one, _), (other, _) in zip(_policies(first), _policies(last), strict=True):
        before, after = rate[first, label(one), "closed"], rate[last, label(other), "closed"]
        grown.append(f"{label(other)} × {before / after:.2f}")
    loop = rate[first, label(Async()), "loop"] / rate[last, label(Async()), "loop"]
    simpy = rate[first, "", "simpy"] / rate[last, "", "simpy"]
    return [
        f"cost per gradient from {first:,} to {last:,} workers: {', '.join(grown)}; event loop × "
        f"{loop:.2f}, SimPy × {simpy:.2f}; log N grows × {math.log(last) / math.log(first):.2f}"
    ]


class _Drawn(Gamma):
    """Gamma times drawn beforehand, so that drawing is no part of what is timed."""

    def __init__(self, workers: int, steps: int) -> None:
        super().__init__(workers=workers)
        object.__setattr__(self, "steps", steps)

    def times(self) -> Floats:
        if "_table" not in self.__dict__:
            who = np.arange(self.workers)[:, None]
            steps = np.arange(self.__dict__["steps"])[None, :]
            object.__setattr__(self, "_table", super().realise(0).step_s(who, steps))
        table: Floats = self.__dict__["_table"]
        return table

    def realise(self, seed: int) -> StepTimes:
        return _TableTimes(self.times())


class _TableTimes(StepTimes):
    def __init__(self, table: Floats) -> None:
        self.table = table

    def step_s(self, workers: object, steps: object) -> Floats:
        return np.asarray(self.table[workers, steps])  # type: ignore[index]


def _enough_steps(workers: int, updates: int) -> int:
    """Also for a closed form that doubles, and an event loop that draws a chunk ahead."""
    return 2 * (updates // workers + 2) + 64


def _with_simpy() -> Callable[[list[list[float]], int], list[tuple[int, int, float, float]]]:
    try:
        import simpy
    except ImportError:
        raise ValueError("this benchmark runs SimPy beside it: pip install simpy") from None

    def arrivals(drawn: list[list[float]], updates: int) -> list[tuple[int, int, float, float]]:
        env = simpy.Environment()
        done = env.event()
        rows: list[tuple[int, int, float, float]] = []

        def worker(me: int):  # type: ignore[no-untyped-def]
            version = 0
            for step_s in drawn[me]:
                start_s = env.now
                yield env.timeout(step_s)
                rows.append((me, version, start_s, env.now))
                version = len(rows)
                if version == updates:
                    done.succeed()

        for me in range(len(drawn)):
            env.process(worker(me))
        env.run(done)
        return rows

    return arrivals


def check_same(made: list[Schedule], arrived: list[tuple[int, int, float, float]] | None) -> None:
    """All ways must have made the same schedule, or the comparison means nothing."""
    one, *others = made
    same = all(one == other for other in others)
    if arrived is not None:
        rows = one.group_rows
        same &= np.array_equal(one.worker[rows], [a[0] for a in arrived[: one.updates]])
        same &= np.array_equal(one.read[rows, 0], [a[1] for a in arrived[: one.updates]])
    if not same:
        raise AssertionError("the schedules compared are not the same")


def _seconds(run: Callable[[], None]) -> float:
    """Of the processor: the machine may have other things to do."""
    began = time.process_time()
    run()
    return time.process_time() - began
