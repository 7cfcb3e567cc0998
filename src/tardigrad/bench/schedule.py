"""Events per second of schedules alone, beside SimPy."""

import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from tardigrad.clusters import Gamma, StepTimes, TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.result_table import ResultTable
from tardigrad.policies import Async
from tardigrad.scheduling import Schedule, schedule

WORKERS = (1000, 10_000, 100_000)
UPDATES = 200_000


def bench_schedule(
    workers: Sequence[int] = WORKERS, updates: int = UPDATES, repeats: int = 3
) -> ResultTable:
    """Asynchronous arrivals per second: closed form, event loop, and SimPy on the same step times.

    An event is one arrival: a gradient ends, is applied as a version, and its worker begins the
    next. SimPy does it with one process per worker and writes down worker, version read, start and
    end, as the schedule does. All three get step times that were drawn beforehand; runs take turns,
    and the median is reported.
    """
    simpy_arrivals = _with_simpy()
    took: dict[tuple[int, str], list[float]] = {}
    for _ in range(repeats):
        for n in workers:
            cluster = _Drawn(workers=n, steps=_enough_steps(n, updates))
            cluster.times()
            made: list[Schedule] = []

            def closed(cluster: TimedCluster = cluster, made: list[Schedule] = made) -> None:
                made.append(schedule(Async(), cluster, updates))

            def loop(cluster: TimedCluster = cluster, made: list[Schedule] = made) -> None:
                made.append(schedule(Async(), cluster, updates, bulk=False))

            drawn = cluster.times().tolist()
            arrived: list[tuple[int, int, float, float]] = []
            for name, run in (
                ("closed", closed),
                ("loop", loop),
                ("simpy", lambda: arrived.extend(simpy_arrivals(drawn, updates))),  # noqa: B023
            ):
                took.setdefault((n, name), []).append(_seconds(run))
            _check_same(made, arrived)
    rate = {where: updates / statistics.median(times) for where, times in took.items()}
    rows = tuple(
        (
            n,
            rate[n, "closed"],
            rate[n, "loop"],
            rate[n, "simpy"],
            rate[n, "closed"] / rate[n, "simpy"],
            rate[n, "loop"] / rate[n, "simpy"],
        )
        for n in workers
    )
    first, last = workers[0], workers[-1]
    grows = rate[first, "closed"] / rate[last, "closed"]
    loop_grows = rate[first, "loop"] / rate[last, "loop"]
    return ResultTable(
        title=f"Asynchronous arrivals per second: {updates:,} of them, median of {repeats} runs",
        columns=("workers", "schedule", "event loop", "SimPy", "schedule ÷", "event loop ÷"),
        rows=rows,
        notes=(
            "÷: against SimPy; schedule: what tardigrad runs for Async, Sync and the uniform "
            "dispatcher; event loop: what it runs for every other policy",
            f"cost per event from {first:,} to {last:,} workers: × {grows:.2f} (event loop × "
            f"{loop_grows:.2f}), log N grows × {math.log(last) / math.log(first):.2f}",
        ),
    )


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


def _check_same(made: list[Schedule], arrived: list[tuple[int, int, float, float]]) -> None:
    """All three must have made the same schedule, or the comparison means nothing."""
    for one in made:
        rows = one.group_rows
        same = np.array_equal(one.worker[rows], [a[0] for a in arrived[: one.updates]])
        same &= np.array_equal(one.read[rows, 0], [a[1] for a in arrived[: one.updates]])
        if not same:
            raise AssertionError("the schedules compared are not the same")


def _seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
