"""How long asynchronous methods take to a target where one worker is 50 times slower, and where
speeds change on the way.

16 workers of 0.9 to 1.1 s a step and a noisy quadratic whose constants are known (100 parameters,
curvatures from 1/100 to 1, noise 0.03 on each component of a gradient: so little that delays, not
noise, bound the rate, and so ill-conditioned that a slow worker's step is a part of the way). "one
slow": the last worker takes 50 s. "changing": after every 60 s, 12 of the 16 become 50 times
slower, or fast again; what they were computing is lost then (each speed is a worker of its own that
comes and goes).

Every method has its best rate of one grid: the least mean time to the target, over the same seeds,
within the same virtual time. What methods take beside a rate is not tuned: the bound of delays is
R = 2n = 32, so that nobody who is as fast as the others is too late; batches are of n = 16. The
loss is looked at after every 64 gradients. A run whose loss was ever ten times what it began with
counts as lost: a quadratic comes back from anywhere when workers become few, and no model does.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tardigrad.core.result_table import ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.drawing import COLOURS, along, legend, log_scale, panels, written
from tardigrad.reproduce.grids import (
    at_rate,
    best_at,
    edges,
    first_reaching,
    last,
    mean_score,
    rate_of,
    told,
)
from tardigrad.reproduce.kept_cells import FoundCells, KeptCell
from tardigrad.reproduce.study import Study, StudyCell

WORKERS = 16
FIXED = 4
"""Of them, that never become slower in "changing"."""
SLOWER = 50
PHASE_S = 60.0
UNTIL_S = 300.0
RATES = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56)
LOSS, TARGET = "validation_loss", 0.005
LOST = 10.0
"""Times the first loss, from where on nothing counts."""
ALIKE = 1.1
"""How many times Ringmaster's time is taken for as soon as it."""
CLUSTERS = {
    "one slow": "one worker 50 times slower",
    "changing": "12 of 16 slower every other minute",
}


def reaching(cell: KeptCell) -> float:
    """Virtual seconds to the target; infinite where it was not reached in time, or was lost before.

    A run ends with the first update at or after the time, which may be much after it.
    """
    losses = [record[LOSS] for record in cell.records]
    if losses and max(losses) > LOST * losses[0]:
        return math.inf
    at_s = first_reaching(LOSS, TARGET)(cell)
    return at_s if at_s <= UNTIL_S else math.inf


class _Method(NamedTuple):
    policy: Mapping[str, Plain]
    rule: Mapping[str, Plain]
    group: int
    """Gradients of an update."""
    most: Mapping[str, int] = MappingProxyType({})
    """Updates that are more than it makes in the time, by the cluster's name, where it waits for
    slow workers: a schedule is made for all of them."""


SGD: Mapping[str, Plain] = {"name": "sgd"}
METHODS: Mapping[str, _Method] = MappingProxyType(
    {
        "sync": _Method({"name": "sync"}, SGD, WORKERS),
        "ASGD": _Method({"name": "async"}, SGD, 1),
        "delay-adaptive": _Method(
            {"name": "async"}, {"name": "delay_adaptive", "workers": WORKERS}, 1
        ),
        "Ringmaster": _Method({"name": "ringmaster", "bound": 2 * WORKERS}, SGD, 1),
        "Ringmaster, stop": _Method(
            {"name": "ringmaster", "bound": 2 * WORKERS, "stop": True}, SGD, 1
        ),
        "Rennala": _Method({"name": "rennala", "batch": WORKERS}, SGD, WORKERS),
        "Rennala, stop": _Method({"name": "rennala", "batch": WORKERS, "stop": True}, SGD, WORKERS),
        "Malenia": _Method(
            {"name": "malenia", "batch": WORKERS}, SGD, WORKERS, {"one slow": 10, "changing": 200}
        ),
    }
)


def speeds() -> list[float]:
    """Of equal machines, which are never quite equal."""
    return [round(0.9 + 0.2 * i / (WORKERS - 1), 4) for i in range(WORKERS)]


def cluster(name: str, until_s: float) -> dict[str, Plain]:
    """Of workers with constant step times, some of which come and go."""
    step_s = speeds()
    if name == "one slow":
        step_s[-1] = float(SLOWER)
        return {"name": "constant", "workers": WORKERS, "step_s": step_s}
    absences: list[Plain] = []
    for start in range(0, math.ceil(until_s / PHASE_S) + 1):
        away = {"leaves_s": start * PHASE_S, "returns_s": (start + 1) * PHASE_S}
        gone = range(FIXED, WORKERS) if start % 2 else range(WORKERS, 2 * WORKERS - FIXED)
        absences += [{"worker": worker, **away} for worker in gone]
    slow = [SLOWER * one for one in step_s[FIXED:]]
    return {
        "name": "constant",
        "workers": 2 * WORKERS - FIXED,
        "step_s": step_s + slow,
        "absences": absences,
    }


def _spec(name: str, where: str, rate: float, seed: int, quick: bool) -> dict[str, Plain]:
    method, until_s = METHODS[name], 80.0 if quick else UNTIL_S
    updates = math.ceil(1.2 * WORKERS * until_s / method.group)
    return {
        "updates": min(updates, method.most.get(where, updates)),
        "seed": seed,
        "evaluate_every": 4 * WORKERS // method.group,
        "stop": {"virtual_s": until_s, "loss": TARGET},
        "task": {"name": "quadratic", "dimension": 100, "condition": 100.0, "noise": 0.03},
        "rule": {**method.rule, "lr": rate},
        "policy": dict(method.policy),
        "cluster": cluster(where, until_s),
    }


def _cells(quick: bool) -> Iterator[StudyCell]:
    for seed in (0,) if quick else (0, 1, 2):
        for where in CLUSTERS:
            for name in METHODS:
                for rate in (0.04,) if quick else RATES:
                    cell = f"{at_rate(f'{where}/{name}', rate)}/seed={seed}"
                    yield StudyCell(cell, _spec(name, where, rate, seed, quick))


def _best(found: FoundCells, where: str, name: str) -> str | None:
    return best_at(found, f"{where}/{name}", RATES, reaching, last(LOSS))


def _table(found: FoundCells) -> ResultTable:
    rows, stems = [], []
    for name in METHODS:
        row: list[str | float | None] = [name]
        for where in CLUSTERS:
            stem = _best(found, where, name)
            time = told(found, stem, reaching)
            stems.append(stem if time != "never" else None)
            row += [time, rate_of(stems[-1])]
        rows.append(tuple(row))
    columns = [column for where in CLUSTERS for column in (f"{where}: s", f"{where}: rate")]
    return ResultTable(
        f"Virtual seconds to a loss of {TARGET:g}, each method at its best rate of one grid",
        ("method", *columns),
        tuple(rows),
        tuple(filter(None, (edges(found, stems, RATES), EXPECTED, _came(found)))),
    )


EXPECTED = (
    "expected (Maranjyan, Tyurin and Richtárik 2025; Tyurin and Richtárik 2023): the slow worker's "
    "late gradients hold ASGD back, delay-adaptive rates less, Ringmaster and Rennala not at all; "
    "where speeds change, Ringmaster and Rennala need not be told; Malenia, which is for data that "
    "differ from worker to worker, waits for the slow one as sync does"
)


def _came(found: FoundCells) -> str:
    """The order by time, for each cluster."""
    if found.empty:
        return "found: not all cells are there yet"
    orders, held = [], []
    for where in CLUSTERS:
        stems = {name: _best(found, where, name) for name in METHODS}
        mean = {name: mean_score(found, stem, reaching) for name, stem in stems.items()}
        order = sorted(stems, key=lambda name: mean[name])
        times = ", ".join(f"{n} {told(found, stems[n], reaching)}" for n in order)
        orders.append(f"{where}: {times}")
        bounded = min(mean[name] for name in mean if name.startswith("Ringmaster"))
        held += [where] if mean["ASGD"] > ALIKE * bounded else []
    words = f"hold ASGD back ({', '.join(held)})" if held else "do not hold ASGD back"
    return f"found, in seconds: late gradients {words}; {'; '.join(orders)}"


def _draw(found: FoundCells, folder: Path) -> list[Path]:
    form = " (quick form)" if found.quick else ""
    figure, grid = panels(2, f"Loss of a noisy quadratic, 16 workers{form}", height=4.6)
    kinds = dict.fromkeys(name.partition(", ")[0] for name in METHODS)
    colours = dict(zip(kinds, COLOURS, strict=False))
    for axes, where in zip(grid, CLUSTERS, strict=True):
        for name in METHODS:
            stem = _best(found, where, name)
            if stem is not None:
                cells = found.matching(f"{stem}/seed=*")
                never = told(found, stem, reaching) == "never"
                label = f"{name}, {'never' if never else f'rate {rate_of(stem):g}'}"
                style = "--" if "stop" in name else "-"
                colour = colours[name.partition(", ")[0]]
                along(axes, cells, "time_s", LOSS, colour, label, style=style)
        axes.axhline(TARGET, color="grey", linewidth=0.8, ls=":")
        axes.set_title(CLUSTERS[where], fontsize=10)
        axes.set_xlabel("virtual time (s)")
        axes.set_ylabel("loss")
        log_scale(axes)
        legend(axes)
    return [written(figure, folder / "time-to-target.png")]


time_to_target = Study(
    "time-to-target",
    "Time to a target with a worker 50 times slower, and with changing speeds: no claim of the 24",
    lambda: list(_cells(False)),
    lambda: list(_cells(True)),
    _table,
    _draw,
)
