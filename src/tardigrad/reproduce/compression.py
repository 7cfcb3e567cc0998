"""Pushes in fewer bytes: the largest 1% or 10% of the numbers, or one byte each, with and without
error feedback.

8 asynchronous workers (gamma times), an MLP on MNIST, as many updates for each. Each codec has its
best rate of one grid, by the mean validation loss at the end. Bytes are those of pushes in their
encoded form; pulls cross whole in every case.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tardigrad.core.result_table import ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.drawing import COLOURS, along, legend, log_scale, panels, written
from tardigrad.reproduce.grids import at_rate, best_at, edges, last, mean_score, rate_of, told
from tardigrad.reproduce.kept_cells import FoundCells, KeptCell
from tardigrad.reproduce.study import Study, StudyCell

PLAIN = "plain"
CODECS: Mapping[str, Mapping[str, Plain]] = MappingProxyType(
    {
        "int8": {"name": "int8"},
        "top-k 10%": {"name": "top_k", "share": 0.1},
        "top-k 1%": {"name": "top_k", "share": 0.01},
    }
)
WAYS = {"with feedback": True, "without": False}
RATES = (0.01, 0.02, 0.04, 0.08)
LOSS, ACCURACY = "validation_loss", "validation_accuracy"
NEAR = 1.1
"""How many times the plain run's loss is taken for "about the plain run's"."""


def forms() -> dict[str, dict[str, Plain]]:
    """The link of each, by its name."""
    made: dict[str, dict[str, Plain]] = {PLAIN: {"name": "full"}}
    for codec, arguments in CODECS.items():
        for way, feedback in WAYS.items():
            encoded = {**arguments, "error_feedback": feedback}
            made[f"{codec}, {way}"] = {"name": "full", "codec": encoded}
    return made


def _spec(link: Mapping[str, Plain], rate: float, seed: int, quick: bool) -> dict[str, Plain]:
    updates = 200 if quick else 600
    task: dict[str, Plain] = {"name": "mnist_mlp", "hidden": 32, "batch_size": 16}
    if quick:
        task = {"name": "logistic_regression", "classes": 10, "batch_size": 16}
    return {
        "updates": updates,
        "seed": seed,
        "evaluate_every": updates // 12,
        "splits": ["validation"],
        "task": task,
        "rule": {"name": "sgd", "lr": rate},
        "link": dict(link),
        "cluster": {"name": "gamma", "workers": 8},
    }


def _cells(quick: bool) -> Iterator[StudyCell]:
    for seed in (0,) if quick else (0, 1, 2):
        for name, link in forms().items():
            for rate in RATES[-1:] if quick else RATES:
                cell = f"{at_rate(name, rate)}/seed={seed}"
                yield StudyCell(cell, _spec(link, rate, seed, quick))


def _best(found: FoundCells, name: str) -> str | None:
    return best_at(found, name, RATES, last(LOSS))


def _mb_in(record: Mapping[str, float]) -> float:
    """In MB."""
    return record["push_bytes"] / 1e6


def _megabytes(cell: KeptCell) -> float:
    return _mb_in(cell.records[-1]) if cell.records else math.inf


def _table(found: FoundCells) -> ResultTable:
    rows, stems = [], {name: _best(found, name) for name in forms()}
    plain = mean_score(found, _best(found, PLAIN), _megabytes)
    for name, stem in stems.items():
        megabytes = mean_score(found, stem, _megabytes)
        times = round(plain / megabytes, 1) if math.isfinite(plain / megabytes) else None
        ends = "empty" if stem is None else found.text(stem, ACCURACY, 100)
        loss = told(found, stem, last(LOSS), 3)
        rows.append((name, rate_of(stem), loss, ends, told(found, stem, _megabytes, 1), times))
    return ResultTable(
        "Compressed pushes after as many updates, each at its best rate of one grid",
        ("pushes", "rate", "validation loss", "accuracy (%)", "MB pushed", "times fewer"),
        tuple(rows),
        tuple(filter(None, (edges(found, stems.values(), RATES), EXPECTED, _came(found)))),
    )


EXPECTED = (
    "expected (Stich et al. 2018): with error feedback top-k ends about where the plain run does, "
    "without it above, the more so the fewer numbers travel; int8 needs none"
)


def _came(found: FoundCells) -> str:
    """Each codec's loss at the end over the plain run's."""
    if found.empty:
        return "found: not all cells are there yet"
    plain = mean_score(found, _best(found, PLAIN), last(LOSS))
    words = []
    for codec in CODECS:
        ends = {w: mean_score(found, _best(found, f"{codec}, {w}"), last(LOSS)) for w in WAYS}
        near = [way for way, loss in ends.items() if loss <= NEAR * plain]
        figures = ", ".join(f"{loss / plain:.2f} {way}" for way, loss in ends.items())
        where = {0: "above in both", 1: f"near only {near[0]}" if near else "", 2: "near in both"}
        words.append(f"{codec} {where[len(near)]} ({figures})")
    return f"found, as times the plain run's loss of {plain:.3f}: {'; '.join(words)}"


def _draw(found: FoundCells, folder: Path) -> list[Path]:
    form = " (quick form, a stand-in)" if found.quick else ""
    figure, grid = panels(
        2, f"Compressed pushes, 8 asynchronous workers{form}: validation loss", height=4.6
    )
    colours = dict(zip((PLAIN, *CODECS), COLOURS, strict=False))
    for name in forms():
        stem = _best(found, name)
        if stem is None:
            continue
        cells = found.matching(f"{stem}/seed=*")
        colour = colours[name.partition(", ")[0]]
        style = ":" if name.endswith("without") else "-"
        label = f"{name}, rate {rate_of(stem):g}"
        along(grid[0], cells, "update", LOSS, colour, label, style=style)
        along(grid[1], cells, _mb_in, LOSS, colour, label, style=style)
    for axes, label in zip(grid, ("updates", "MB pushed"), strict=True):
        axes.set_xlabel(label)
        axes.set_ylabel("validation loss")
        log_scale(axes)
    grid[1].set_xscale("log")
    legend(grid[0], below=True)
    return [written(figure, folder / "compression.png")]


compression = Study(
    "compression",
    "Top-k and int8 pushes with and without error feedback: no claim of the 24",
    lambda: list(_cells(False)),
    lambda: list(_cells(True)),
    _table,
    _draw,
)
