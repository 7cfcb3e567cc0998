"""Sweeps: one experiment at every combination of some values, such as learning rates and seeds."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from tardigrad.core.checks import count, of_kind, require
from tardigrad.core.own_code import brief, title_name
from tardigrad.engine.run import Say
from tardigrad.experiment.cells import MakeObservers, RunCell
from tardigrad.experiment.kept import keep_outcomes
from tardigrad.experiment.named_rules import split
from tardigrad.experiment.side_by_side import CellProgress
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.spec_data import Table, changed, parsed, read_toml, with_value
from tardigrad.experiment.structure import Plain
from tardigrad.report import Sweep, value_text

EXAMPLE = "rule.lr=[0.01,0.02]"
SEED = "seed"


class Axis(NamedTuple):
    """A dotted key of the spec and the values it takes."""

    key: str
    values: list[Plain]


class Point(NamedTuple):
    """One combination of values, and the experiment it makes of the spec."""

    values: Mapping[str, Plain]
    spec: Spec

    @property
    def label(self) -> str:
        """All but the seed: points that differ in that alone are repetitions."""
        named = [f"{k}={value_text(v)}" for k, v in self.values.items() if k != SEED]
        return ", ".join(named) or brief(str(self.spec.rule["name"]))


def sweep(
    experiment: Spec | str | Path | Table,
    axes: Mapping[str, Any] | Sequence[str],
    *,
    seeds: int | None = None,
    jobs: int | None = 1,
    folder: str | Path | None = None,
    observers: MakeObservers | None = None,
    say: Say | None = None,
    progress: CellProgress | None = None,
) -> Sweep:
    """Run an experiment at every combination of values.

    Args:
        experiment: a `tg.Spec`, the path of its file, or the same as plain data.
        axes: by dotted key the values that it takes, such as {"rule.lr": [0.01, 0.02]}; a single
            value is a change to every point. Or words as on the command line.
        seeds: how many, counting up from the experiment's; left out: one, or those of an axis
            "seed". Points that differ in the seed alone are one point with several runs.
        jobs: how many runs at a time, in processes of their own; None: one per core, on a GPU as
            many as make use of it (`experiment.sharing`). The bits are the same. A script that
            uses several needs `if __name__ == "__main__":`.
        folder: where each run is kept when it has ended; left out: nowhere.
        observers: (label, seed) -> the observers of that run.
        say: told, a line at a time, how runs are executed.
        progress: told of each run.
    """
    data = _data(experiment)
    made = axes_of(axes)
    if seeds is not None:
        count("seeds", seeds)
        named = any(axis.key == SEED for axis in made.axes) or SEED in made.changes
        require(not named, "seeds are given twice: as seeds and as values of seed; keep one")
        first = int(data.get(SEED, 0))
        made.axes.append(Axis(SEED, list(range(first, first + seeds))))
    swept = points_of(data, made)
    require(
        observers is None or callable(observers),
        "a sweep is many runs, and each has its own observers: give a function of label and seed "
        "that makes them, such as observers=lambda label, seed: [Mine()]",
    )
    into = None if folder is None else Path(folder)
    outcomes = keep_outcomes(cells_of(swept, observers), into, jobs, say, progress)
    return Sweep.of(title_name(str(swept[0].spec.task["name"])), outcomes, into)


def cells_of(swept: Sequence[Point], observers: MakeObservers | None = None) -> list[RunCell]:
    return [
        RunCell(point.label, point.spec, place, dict(point.values), observers=observers)
        for place, point in enumerate(swept)
    ]


def _data(experiment: Spec | str | Path | Table) -> Table:
    if isinstance(experiment, Spec):
        return experiment.data()
    if isinstance(experiment, Mapping):
        return experiment
    kinds = (str, PathLike, Spec, Mapping)
    of_kind("experiment", experiment, kinds, "a tg.Spec or the path of its file", '"a.toml"')
    return read_toml(Path(experiment))


class Axes(NamedTuple):
    """What is swept, and what is the same at every point."""

    axes: list[Axis]
    changes: dict[str, Plain]


def axes_of(said: Mapping[str, Any] | Sequence[str]) -> Axes:
    """From values by key, or from words such as "rule.lr=[0.01,0.02]" and "updates=100"."""
    pairs = [(k, plain_of(v)) for k, v in said.items()] if isinstance(said, Mapping) else (
        [_pair(word) for word in said]
    )  # fmt: skip
    out = Axes([], {})
    for key, value in pairs:
        if not isinstance(value, list):
            out.changes[key] = value
            continue
        require(bool(value), f"{key} has an empty list: give it values, as in {EXAMPLE}")
        for one in value:
            require(value.count(one) == 1, f"{key} has the value {value_text(one)} twice")
        known = [axis.key for axis in out.axes]
        require(key not in known, f"{key} is swept twice: put all its values into one list")
        out.axes.append(Axis(key, value))
    require(
        bool(out.axes),
        f"there is nothing to sweep: give some key a list of values, such as {EXAMPLE}; "
        "a single experiment is `tardigrad run`",
    )
    return out


def _pair(word: str) -> tuple[str, Plain]:
    key, _, text = (part.strip() for part in word.partition("="))
    value = parsed(text)
    if isinstance(value, str) and text.startswith("[") and text.endswith("]"):
        # Names without quotes, which the shell may have taken away.
        value = [parsed(part) for part in split(text[1:-1], ",")]
    mistaken = isinstance(value, str) and ("," in value or value[:1] == "[" or not value)
    require(not mistaken, f"{word!r} is not a list of values: write {key}=[…], as in {EXAMPLE}")
    return key, value


def plain_of(value: Any) -> Plain:
    """Values of Python as a spec has them: ranges, tuples and arrays are lists."""
    if hasattr(value, "tolist"):  # of NumPy or torch
        return plain_of(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): plain_of(inner) for name, inner in value.items()}
    listed = isinstance(value, Iterable) and not isinstance(value, str)
    return [plain_of(one) for one in value] if listed else value


def points(data: Table, words: Sequence[str]) -> list[Point]:
    """The points that words such as "rule.lr=[0.01,0.02]" make of a spec's plain data.

    A key with a list is an axis, one with a single value a change to every point. Where the key
    itself holds a list, an axis is a list of lists: rule.betas=[[0.8,0.9],[0.9,0.99]].
    """
    return points_of(data, axes_of(words))


def points_of(data: Table, axes: Axes) -> list[Point]:
    base = changed(data, ())
    for key, value in axes.changes.items():
        base = with_value(base, key, value)
    made: dict[str, Point] = {}
    keys = [axis.key for axis in axes.axes]
    for combination in itertools.product(*(axis.values for axis in axes.axes)):
        values = dict(zip(keys, combination, strict=True))
        point = Point(values, _spec(base, values))
        text = point.spec.toml()
        if text in made:
            raise ValueError(
                f"the points {_says(made[text].values)} and {_says(values)} are the same "
                "experiment: an axis may not undo another"
            )
        made[text] = point
    return list(made.values())


def _spec(base: Table, values: Mapping[str, Plain]) -> Spec:
    data = dict(base)
    for key, value in values.items():
        data = with_value(data, key, value)
    spec = Spec.of(data)
    require(
        spec.evaluate_every != 0,
        "a sweep compares evaluations, but evaluate_every = 0 makes none: leave it out, or give "
        "the number of updates between them",
    )
    return spec


def _says(values: Mapping[str, Plain]) -> str:
    return " ".join(f"{key}={value_text(value)}" for key, value in values.items())
