"""What the columns of a log mean, by their names."""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tardigrad.clusters.logs.table import LogTable, is_number
from tardigrad.core.checks import require

UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "micros", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanos", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minutes"), 60.0),
}
WORKERS = ("worker", "worker_id", "worker_index", "global_rank", "rank", "replica", "process")
MACHINES = ("host", "hostname", "host_name", "node", "node_name", "machine", "instance", "server")
DEVICES = ("gpu", "gpu_id", "device", "device_id", "local_rank")
STEPS = ("step", "global_step", "iteration", "iter", "batch", "step_id", "index", "")
DURATIONS = (
    *("duration", "step_duration", "dur", "elapsed", "elapsed_time", "took", "compute"),
    *("step_time", "iter_time", "iteration_time", "batch_time", "compute_time", "time_per_step"),
)
WITH_UNIT = ("step", "iter", "iteration", "batch", "")
"""Durations where a unit stands in the name: step is a number, step_ms a time."""
STARTS = ("start", "start_time", "started", "started_at", "begin", "begin_time", "start_ts")
ENDS = ("end", "end_time", "ended", "ended_at", "finish", "finished", "finished_at", "end_ts")
STAMPS = ("timestamp", "time_stamp", "ts", "datetime", "date", "logged_at", "at")
UNSURE = ("time", "wall_time", "walltime", "clock")
"""When it was, or how long it took."""
METRICS = ("loss", "accuracy", "acc", "lr", "learning_rate", "epoch", "samples", "tokens", "norm")
ADVICE = "rename its column to step_s (seconds a step took) or timestamp (when a step ended)"


class Named(NamedTuple):
    """A column, and the seconds of its unit where its name says one."""

    name: str
    unit_s: float | None = None


@dataclass(frozen=True)
class Meaning:
    """Which columns say who, in which order, and how long: one of took to wide is given."""

    who: tuple[str, ...] = ()
    step: str | None = None
    took: Named | None = None
    start_end: tuple[Named, Named] | None = None
    stamp: Named | None = None
    wide: tuple[Named, ...] = ()
    left: tuple[str, ...] = ()
    """Columns beside wide ones that are not numbers."""

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that are read as numbers."""
        if self.wide:
            return tuple(column.name for column in self.wide)
        times = (self.took, *(self.start_end or ()), self.stamp)
        names = (self.step, *(column.name for column in times if column))
        return tuple(name for name in names if name is not None)


class _Finder:
    """The columns whose names are among those known for something."""

    def __init__(self, bases: Mapping[str, Named]) -> None:
        self.bases = bases

    def __call__(self, known: Container[str], with_unit: bool | None = None) -> list[Named]:
        return [
            Named(name, base.unit_s)
            for name, base in self.bases.items()
            if base.name in known and with_unit in (None, base.unit_s is not None)
        ]


def meaning_of(table: LogTable) -> Meaning:
    """Refuses what could mean two things."""
    bases = {name: _base(name) for name in table.columns}
    those = _Finder(bases)
    who, step = _who(those), next((n.name for n in those(STEPS, with_unit=False)), None)
    own = [Named("step_s", 1.0)] if "step_s" in table.columns else []
    took = own or those(DURATIONS) + those(WITH_UNIT, with_unit=True)
    unsure = those(UNSURE)
    several = ", ".join(n.name for n in took)
    require(
        len(took) < 2,
        f"{table.path}: {several} may each be a step's time: {ADVICE.partition(' or')[0]}",
    )
    if took:
        return Meaning(who, step, took=took[0])
    starts, ends = those(STARTS), those(ENDS)
    if len(starts) == len(ends) == 1:
        return Meaning(who, step, start_end=(starts[0], ends[0]))
    stamps = those(STAMPS)
    known = {n.name for n in (*stamps, *unsure)} | {*who, step}
    rest = tuple(Named(n, bases[n].unit_s) for n in table.columns if n not in known)
    numbers = [n for n in rest if _numeric(table, n.name)]
    if not who and len(numbers) > 1 and not unsure:
        left = tuple(n.name for n in rest if n not in numbers)
        return _wide(table, step or (stamps[0].name if stamps else None), numbers, left)
    require(
        len(stamps) + len(unsure) == 1,
        f"{table.path}: no column is known to say how long a step took, among "
        f"{', '.join(table.columns)}: {ADVICE}",
    )
    if stamps:
        return Meaning(who, step, stamp=stamps[0])
    return _judged(table, Meaning(who, step), unsure[0])


def _who(those: "_Finder") -> tuple[str, ...]:
    """A worker's own column; else its machine, with its device there."""
    own = [n.name for known in WORKERS for n in those((known,))]
    if own:
        return (own[0],)
    parts = [those(MACHINES), those(DEVICES)]
    return tuple(found[0].name for found in parts if found)


def _wide(
    table: LogTable, order: str | None, columns: Sequence[Named], left: tuple[str, ...]
) -> Meaning:
    """A column per worker; but not where a column is something that is measured in training."""
    measured = [n.name for n in columns if _base(n.name).name in METRICS]
    require(
        not measured,
        f"{table.path}: no column is known to say how long a step took, and "
        f"{', '.join(measured)} is not a worker: {ADVICE}",
    )
    return Meaning(step=order, wide=tuple(columns), left=left)


def _judged(table: LogTable, so_far: Meaning, column: Named) -> Meaning:
    """A column called time: points in time where they are dates or seconds since 1970."""
    cells = [line.cells[column.name] for line in table.lines if column.name in line.cells]
    try:
        least = min(map(float, cells))
    except ValueError:  # dates
        return Meaning(so_far.who, so_far.step, stamp=column)
    require(
        least >= 1e8,
        f"{table.path}: {column.name} may be when a step ended or how long it took: {ADVICE}",
    )
    return Meaning(so_far.who, so_far.step, stamp=column)


def _base(name: str) -> Named:
    """The name without capitals, brackets and its unit: "Step time (ms)" is step_time."""
    plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()).strip("_")
    base, _, last = plain.rpartition("_")
    return Named(base, UNITS[last]) if last in UNITS else Named(plain)


def is_unit(name: str) -> bool:
    """Whether a column is called seconds, or ms, and nothing else."""
    base = _base(name)
    return base.unit_s is not None and not base.name


def _numeric(table: LogTable, name: str) -> bool:
    """Most of its cells are numbers: what the others are is told with their lines."""
    cells = [cell for line in table.lines if (cell := line.cells.get(name, ""))]
    return 2 * sum(map(is_number, cells)) > len(cells)
