"""The step times of a log, worker by worker, in the order in which they were recorded."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tardigrad.clusters.logs.columns import Meaning, Named, is_unit, meaning_of
from tardigrad.clusters.logs.files import read_table
from tardigrad.clusters.logs.moments import Moments
from tardigrad.clusters.logs.table import LogTable, StepLine
from tardigrad.core.arrays import Floats
from tardigrad.core.checks import require


@dataclass(frozen=True)
class StepLog:
    """Measured step times.

    Args:
        times_s: of each worker, in the order of its steps.
        steps: which steps these were, as far as the log numbers them; else 0, 1, 2, …
        names: of the workers in the log.
        guesses: what the log does not say itself, a line each; () for the columns worker and
            step_s.
    """

    times_s: tuple[Floats, ...]
    steps: tuple[Floats, ...]
    names: tuple[str, ...]
    guesses: tuple[str, ...] = ()

    @property
    def workers(self) -> int:
        return len(self.times_s)

    def aligned_s(self) -> Floats:
        """The steps that every worker has made: (steps, workers)."""
        common = sorted(set.intersection(*(set(own.tolist()) for own in self.steps)))
        columns = []
        for own, times_s in zip(self.steps, self.times_s, strict=True):
            at = dict(zip(own.tolist(), times_s.tolist(), strict=True))
            columns.append([at[step] for step in common])
        return np.array(columns).T


class _Time(NamedTuple):
    """One step: whose, which, and for how long."""

    who: str
    step: float | None
    took_s: float


def read_step_log(path: str | Path) -> StepLog:
    """Read what people have.

    CSV with commas, semicolons, tabs or bars, tables of Markdown, psql and mysql, JSON lines, or a
    JSON list; a line per step with the worker's number or its host's name, or a column per worker;
    how long each step took, its start and its end, or one point in time per line (a step then lasts
    from a worker's line to its next, whatever it waited for included). Units are taken from names
    (duration_ms) and are seconds otherwise; times since 1970 tell theirs by their size. What could
    mean two things is refused.
    """
    table = read_table(path)
    meaning = meaning_of(table)
    for name in meaning.numbers:
        if name in table.doubts:
            raise ValueError(table.doubts[name])
    guesses = list(table.guesses)
    if meaning.wide:
        times = list(_wide(table, meaning, guesses))
    elif meaning.stamp is not None:
        times = list(_between(table, meaning, meaning.stamp, guesses))
    else:
        times = list(_each(table, meaning, guesses))
    return _gathered(table, meaning, times, guesses)


def _each(table: LogTable, meaning: Meaning, guesses: list[str]) -> Iterator[_Time]:
    """A line is a step."""
    needed = [meaning.took] if meaning.took else list(meaning.start_end or ())
    lines = _with_columns(table, [n.name for n in needed], guesses)
    if meaning.took is not None:
        unit_s = _unit_s(meaning.took, guesses)
        for line in lines:
            took_s = _length(line.cells[meaning.took.name], meaning.took.name, table.where(line))
            yield _Time(_name(table, meaning, line), _step(table, meaning, line), took_s * unit_s)
        return
    assert meaning.start_end is not None
    start, end = meaning.start_end
    guesses.append(f"a step lasts from {start.name} to {end.name}")
    moments = Moments(guesses)
    for line in lines:
        where = table.where(line)
        began_s, ended_s = (moments.at_s(line.cells[n.name], n, where) for n in (start, end))
        require(ended_s > began_s, f"{where}: {end.name} is not after {start.name}")
        yield _Time(
            _name(table, meaning, line), _step(table, meaning, line), float(ended_s - began_s)
        )


def _between(
    table: LogTable, meaning: Meaning, stamp: Named, guesses: list[str]
) -> Iterator[_Time]:
    """A line is the end of a step; a worker's first line only says when its second began."""
    moments = Moments(guesses)
    by_worker: dict[str, list[tuple[Decimal, StepLine]]] = {}
    for line in _with_columns(table, [stamp.name], guesses):
        at_s = moments.at_s(line.cells[stamp.name], stamp, table.where(line))
        by_worker.setdefault(_name(table, meaning, line), []).append((at_s, line))
    for who, own in by_worker.items():
        require(
            len(own) > 1,
            f"{table.path} has one line of worker {who}, and a step lasts from one {stamp.name} "
            "to the next: give a longer log",
        )
        own.sort(key=lambda moment: moment[0])
        for (before_s, _), (at_s, line) in itertools.pairwise(own):
            require(
                at_s > before_s,
                f"{table.where(line)}: {stamp.name} is that of another line of worker {who}, so "
                "that a step took no time: log fractions of a second",
            )
            yield _Time(who, _step(table, meaning, line), float(at_s - before_s))
    guesses.append(
        f"a step lasts from a worker's {stamp.name} to its next: what it waited for is in it, so "
        "that synchronous runs hide who was slow"
    )


def _wide(table: LogTable, meaning: Meaning, guesses: list[str]) -> Iterator[_Time]:
    """A line is a step of everybody; an empty cell is a step that a worker did not make."""
    guesses.append(f"a column per worker: {_some([n.name for n in meaning.wide])}")
    if meaning.left:
        guesses.append(f"columns that are not numbers are left out: {_some(meaning.left)}")
    if len(units := {column.unit_s for column in meaning.wide}) == 1:  # which is told once for all
        of_all_s = _unit_s(Named("a worker's column", *units), guesses)
        unit_s = {column.name: of_all_s for column in meaning.wide}
    else:
        unit_s = {column.name: _unit_s(column, guesses) for column in meaning.wide}
    for number, line in enumerate(table.lines):
        for column in meaning.wide:
            cell = line.cells.get(column.name, "")
            if cell:
                took_s = _length(cell, column.name, table.where(line)) * unit_s[column.name]
                require(
                    took_s < 1e8,
                    f"{table.where(line)}: {cell} in {column.name} is no step's time; points in "
                    "time are read from a line per step, with the columns worker and timestamp",
                )
                yield _Time(column.name, float(number), took_s)


def _gathered(table: LogTable, meaning: Meaning, times: list[_Time], guesses: list[str]) -> StepLog:
    by_worker: dict[str, list[_Time]] = {}
    for time in times:
        by_worker.setdefault(time.who, []).append(time)
    require(bool(by_worker), f"{table.path} has no step times")
    names = _numbered(table, meaning, by_worker, guesses)
    ordered = []
    for name in names:
        own = by_worker[name]
        if all(time.step is not None for time in own):
            own.sort(key=lambda time: time.step or 0.0)
        ordered.append(own)
    return StepLog(
        tuple(np.array([time.took_s for time in own]) for own in ordered),
        tuple(
            np.array([float(i) if t.step is None else t.step for i, t in enumerate(own)])
            for own in ordered
        ),
        tuple(names),
        tuple(dict.fromkeys(guesses)),
    )


def _numbered(
    table: LogTable, meaning: Meaning, by_worker: Mapping[str, object], guesses: list[str]
) -> list[str]:
    """Names in the order of the workers' numbers."""
    if not meaning.who and not meaning.wide:
        return list(by_worker)
    if not all(name.isascii() and name.isdigit() for name in by_worker):
        names = sorted(by_worker, key=_natural) if not meaning.wide else list(by_worker)
        told = _some([f"{name} is worker {i}" for i, name in enumerate(names)])
        count = "1 worker" if len(names) == 1 else f"{len(names)} workers"
        guesses.append(f"{count} by {' and '.join(meaning.who) or 'column'}: {told}")
        return names
    names = sorted(by_worker, key=int)
    first = int(names[0]) if int(names[0]) < 2 else 0
    for number, name in enumerate(names, start=first):
        require(
            number == int(name),
            f"{table.path} has times for worker {names[-1]} but none for worker {number}: "
            "number the workers from 0 without holes",
        )
    if first:
        guesses.append(f"workers are counted from 1: {names[0]} is worker 0")
    return names


def _with_columns(table: LogTable, names: list[str], guesses: list[str]) -> list[StepLine]:
    """The lines that have these columns: logs of JSON lines tell of other things too."""
    lines = [line for line in table.lines if all(name in line.cells for name in names)]
    if len(lines) < len(table.lines):
        left = len(table.lines) - len(lines)
        guesses.append(f"lines without {' and '.join(names)} are left out: {left:,}")
    return lines


def _name(table: LogTable, meaning: Meaning, line: StepLine) -> str:
    parts = [line.cells.get(name, "") for name in meaning.who]
    require(all(parts), f"{table.where(line)}: {' or '.join(meaning.who)} is missing")
    return ":".join(parts)


def _step(table: LogTable, meaning: Meaning, line: StepLine) -> float | None:
    if meaning.step is None or not line.cells.get(meaning.step):
        return None
    try:
        return float(line.cells[meaning.step])
    except ValueError:
        return None


def _unit_s(column: Named, guesses: list[str]) -> float:
    if column.name == "step_s":
        return 1.0
    if column.unit_s is None:
        guesses.append(f"{column.name} names no unit: taken as seconds")
        return 1.0
    if is_unit(column.name):
        return column.unit_s
    words = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds", 1e-9: "nanoseconds"}
    guesses.append(f"{column.name} is in {words.get(column.unit_s, 'minutes')}")
    return column.unit_s


def _length(text: str, name: str, where: str) -> float:
    if not text:
        raise ValueError(f"{where}: {name} is missing; give a number or leave the line out")
    value = _number(text, name, where)
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{where}: {name} must be finite and greater than 0, got {text!r}")
    return value


def _number(text: str, name: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{where}: {name} must be a number, got {text!r}") from None


def _natural(name: str) -> list[tuple[int, str]]:
    """host-2 comes before host-10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _some(items: Sequence[str]) -> str:
    """The first few."""
    return ", ".join([*items[:4], *(["…"] if len(items) > 4 else [])])
