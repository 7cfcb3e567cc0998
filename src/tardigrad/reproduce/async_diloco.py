"""Asynchronous local SGD beside synchronous DiLoCo: a character transformer, four unequal workers.

The workers take 0.58, 0.75, 1.51 and 3.33 s a step, as in DeepMind's toy (Liu et al. 2024); a push
is 6 local steps of AdamW (state kept). Each method has the same virtual time, and its best outer
rate of one grid, by the mean validation loss at the end. Momentum is 0.9 throughout; delayed
Nesterov moves it every 4 pushes; DyLU gives slower workers fewer of the steps. The transformer is
small (2 layers of width 32, 32 characters of context), the text tiny Shakespeare, the loss in nats
a character.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tardigrad.core.result_table import ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.drawing import COLOURS, along, legend, panels, written
from tardigrad.reproduce.grids import (
    Score,
    at_rate,
    best_at,
    edges,
    last,
    mean_score,
    rate_of,
    told,
)
from tardigrad.reproduce.kept_cells import FoundCells, KeptCell
from tardigrad.reproduce.study import Study, StudyCell

STEP_S = (0.58, 0.75, 1.51, 3.33)
STEPS = 6
RATES = (0.01, 0.03, 0.1, 0.3, 0.7)
USUAL = 0.7
"""DiLoCo's own outer rate."""
CONTEXT = 32
LOSS = "validation_loss"


class _Method(NamedTuple):
    policy: Mapping[str, Plain]
    rule: Mapping[str, Plain]
    pushes_s: float
    """About how many updates it makes in a second, for the number of evaluations."""


NESTEROV: Mapping[str, Plain] = {"name": "sgd", "momentum": 0.9, "nesterov": True}
DELAYED: Mapping[str, Plain] = {"name": "delayed_nesterov", "momentum": 0.9, "every": len(STEP_S)}
FREE = sum(1 / (STEPS * step_s) for step_s in STEP_S)
SYNC, ASYNC, DELAYS, DYLU = (
    "sync DiLoCo",
    "async Nesterov",
    "async delayed Nesterov",
    "delayed + DyLU",
)
METHODS: Mapping[str, _Method] = MappingProxyType(
    {
        SYNC: _Method({"name": "sync"}, NESTEROV, 1 / (STEPS * max(STEP_S))),
        ASYNC: _Method({"name": "async"}, NESTEROV, FREE),
        DELAYS: _Method({"name": "async"}, DELAYED, FREE),
        DYLU: _Method(
            {"name": "dylu", "policy": {"name": "async"}}, DELAYED, len(STEP_S) / max(STEP_S)
        ),
    }
)


def _spec(name: str, rate: float, seed: int, quick: bool) -> dict[str, Plain]:
    method, until_s = METHODS[name], 120.0 if quick else 300.0
    task: dict[str, Plain] = {
        "name": "char_transformer",
        "data": "tiny_shakespeare",
        "layers": 2,
        "heads": 4,
        "width": 32,
        "context": CONTEXT,
        "batch_size": 16,
        "validation": 16_000,
    }
    if quick:
        task = {"name": "logistic_regression", "batch_size": 16}
    return {
        "updates": math.ceil(1.1 * method.pushes_s * until_s),
        "seed": seed,
        "evaluate_every": max(1, round(method.pushes_s * until_s / 20)),
        "splits": ["validation"],
        "stop": {"virtual_s": until_s},
        "task": task,
        "rule": {**method.rule, "lr": rate},
        "policy": dict(method.policy),
        "link": {"name": "full"},  # so that bytes are kept with every evaluation
        "work": {"name": "local_steps", "steps": STEPS, "inner": {"name": "adamw", "lr": 0.003}},
        "cluster": {"name": "constant", "workers": len(STEP_S), "step_s": list(STEP_S)},
    }


def _cells(quick: bool) -> Iterator[StudyCell]:
    for seed in (0,) if quick else (0, 1, 2):
        for name in METHODS:
            for rate in RATES[-1:] if quick else RATES:
                cell = f"{at_rate(name, rate)}/seed={seed}"
                yield StudyCell(cell, _spec(name, rate, seed, quick))


def _best(found: FoundCells, name: str) -> str | None:
    return best_at(found, name, RATES, last(LOSS))


def bytes_of(record: Mapping[str, float]) -> float:
    """Both ways, in MB."""
    return (record["push_bytes"] + record["pull_bytes"]) / 1e6


def after(samples: float) -> Score:
    """The loss after so many samples, for equal work; on a straight line between evaluations."""

    def score(cell: KeptCell) -> float:
        known = [(r["samples"], r[LOSS]) for r in cell.records if LOSS in r]
        if not known or known[-1][0] < samples:
            return math.inf
        return float(np.interp(samples, *np.array(known).T))

    return score


def common_samples(found: FoundCells) -> float:
    """What synchronous training has seen at the end; nothing where it is not there."""
    stem = _best(found, SYNC)
    cells = [] if stem is None else found.matching(f"{stem}/seed=*")
    ended = [cell.records[-1]["samples"] for cell in cells if cell.records]
    return min(ended) if ended else math.nan


def pushed_mb(cell: KeptCell) -> float:
    return bytes_of(cell.records[-1]) if cell.records else math.inf


def _table(found: FoundCells) -> ResultTable:
    rows, samples = [], common_samples(found)
    stems = {name: _best(found, name) for name in METHODS}
    for name, stem in stems.items():
        at_end, alike = told(found, stem, last(LOSS), 3), told(found, stem, after(samples), 3)
        steps = _mean(found, stem, "samples")
        rows.append((name, rate_of(stem), at_end, alike, steps, told(found, stem, pushed_mb, 1)))
    return ResultTable(
        "Async local SGD, 4 unequal workers: validation loss (nats a character), best outer rates",
        ("method", "rate", "loss at the end", "loss at equal work", "samples", "MB both ways"),
        tuple(rows),
        tuple(filter(None, (WORK, edges(found, stems.values(), RATES), EXPECTED, _came(found)))),
    )


def _mean(found: FoundCells, stem: str | None, figure: str) -> int | None:
    values = [] if stem is None else found.values(stem, figure)
    return round(statistics.fmean(values)) if values else None


WORK = "equal work: after as many samples as sync DiLoCo sees in the whole time"
EXPECTED = (
    "expected (Liu et al. 2024): at equal work async Nesterov ends above sync DiLoCo, and delayed "
    "Nesterov with DyLU repairs that; in equal time asynchronous training does more work"
)


def _came(found: FoundCells) -> str:
    """At equal work and in equal time, each beside synchronous training."""
    if found.empty:
        return "found: not all cells are there yet"
    samples = common_samples(found)
    work = {n: mean_score(found, _best(found, n), after(samples)) for n in METHODS}
    time = {n: mean_score(found, _best(found, n), last(LOSS)) for n in METHODS}
    usual = {n: mean_score(found, at_rate(n, USUAL), last(LOSS)) for n in METHODS}
    broken = work[ASYNC] > work[SYNC]
    repairs = [n for n in (DELAYS, DYLU) if work[n] < work[ASYNC]]
    return (
        f"found: at equal work and best rates async Nesterov ends "
        f"{'above' if broken else 'not above'} sync DiLoCo, and "
        f"{' and '.join(repairs) if repairs else 'neither repair'} below it ({_told(work)}); in "
        f"equal time {_told(time)}; in equal time at the outer rate {USUAL:g} for all "
        f"{_told(usual)}"
    )


def _told(losses: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items())


def _draw(found: FoundCells, folder: Path) -> list[Path]:
    form = " (quick form, a stand-in)" if found.quick else ""
    figure, grid = panels(3, f"Local SGD on 4 workers of 0.58 to 3.33 s a step{form}", height=4.2)
    ends = []
    for name, colour in zip(METHODS, COLOURS, strict=False):
        stem = _best(found, name)
        if stem is None:
            continue
        cells = found.matching(f"{stem}/seed=*")
        ends += [cell.records[-1][LOSS] for cell in cells if cell.records]
        label = f"{name}, rate {rate_of(stem):g}"
        along(grid[0], cells, "time_s", LOSS, colour, label)
        along(grid[1], cells, bytes_of, LOSS, colour, label)
        by_rate = [(r, mean_score(found, at_rate(name, r), last(LOSS))) for r in RATES]
        grid[2].plot(*zip(*by_rate, strict=True), "o-", color=colour, label=name)
    grid[2].set_xscale("log")
    grid[2].set_xticks(RATES, [f"{rate:g}" for rate in RATES])
    grid[2].minorticks_off()
    labels = ("virtual time (s)", "traffic both ways (MB)", "outer rate")
    for axes, label in zip(grid, labels, strict=True):
        axes.set_xlabel(label)
        axes.set_ylabel("validation loss" if found.quick else "validation loss (nats a character)")
        if ends and not found.quick:
            axes.set_ylim(min(ends) - 0.05, 3.4)
        legend(axes, below=True)
    grid[2].set_ylabel("validation loss at the end")
    return [written(figure, folder / "async-diloco.png")]


async_diloco = Study(
    "async-diloco",
    "Async local SGD beside DiLoCo on four unequal workers: no claim of the 24",
    lambda: list(_cells(False)),
    lambda: list(_cells(True)),
    _table,
    _draw,
)
