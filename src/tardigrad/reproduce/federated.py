"""FedBuff and FedAsync beside synchronous rounds, with equal and with skewed shares of the data.

20 clients whose speeds differ (gamma, heterogeneous) take 5 steps of SGD on their own share and
push the difference. Shares are drawn at random ("equal"), or hold about two labels each ("skewed").
Each method has the same virtual time and its best server rate of one grid, by the mean validation
accuracy at the end, which is the one that is told. FedBuff: `SoftSync(size=10, wait=False)` with
weights (d + 1)^−1/2; FedAsync: the same weights; FedAvg: `Sync` with the mean of all clients.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tardigrad.core.result_table import ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.drawing import COLOURS, along, legend, panels, written
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
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.study import Study, StudyCell

METHODS: Mapping[str, Mapping[str, Plain]] = MappingProxyType(
    {
        "FedAvg": {"policy": {"name": "sync"}, "rule": {"name": "sgd"}},
        "FedBuff": {
            "policy": {"name": "soft_sync", "size": 10, "wait": False},
            "rule": {"name": "staleness_weighted"},
        },
        "FedAsync": {"policy": {"name": "async"}, "rule": {"name": "fedasync"}},
    }
)
SHARES = {"equal": "partition", "skewed": "by_label"}
SERVER = (0.3, 0.6, 1.0, 1.5, 2.5)
RATES = {"FedAvg": SERVER, "FedBuff": SERVER, "FedAsync": (0.3, 0.6, 1.0)}
"""FedAsync's is the new parameters' share of a mean: 1 is the most there can be, and no edge."""
STEPS = 5
CLIENTS = 20
PUSHES_A_UPDATE = {"FedAvg": CLIENTS, "FedBuff": 10, "FedAsync": 1}
ACCURACY = "validation_accuracy"
TARGET = 0.85
chosen_by = last(ACCURACY, highest=True)
_reaching = first_reaching(ACCURACY, TARGET, highest=True)


def _spec(method: str, shares: str, rate: float, seed: int, quick: bool) -> dict[str, Plain]:
    pushes = 1200 if quick else 3000  # more than the time allows
    each = PUSHES_A_UPDATE[method]
    task: dict[str, Plain] = {"name": "mnist_mlp", "hidden": 32, "batch_size": 16}
    if quick:
        task = {"name": "logistic_regression", "classes": 10, "margin": 8.0, "batch_size": 4}
    parts = METHODS[method]
    rule = {**parts["rule"], ("alpha" if method == "FedAsync" else "lr"): rate}
    return {
        "updates": pushes // each,
        "seed": seed,
        "evaluate_every": max(1, 40 // each),
        "splits": ["validation"],
        "stop": {"virtual_s": 60.0 if quick else 120.0},
        "task": {**task, "sampling": SHARES[shares]},
        "rule": rule,
        "policy": parts["policy"],
        "work": {"name": "local_steps", "steps": STEPS, "inner": {"name": "sgd", "lr": 0.1}},
        "cluster": {"name": "gamma", "workers": CLIENTS, "heterogeneous": True, "mean_s": 1.0},
    }


def _cells(quick: bool) -> Iterator[StudyCell]:
    for seed in (0,) if quick else (0, 1, 2):
        for shares in SHARES:
            for method in METHODS:
                for rate in (1.0,) if quick else RATES[method]:
                    name = f"{at_rate(f'{shares}/{method}', rate)}/seed={seed}"
                    yield StudyCell(name, _spec(method, shares, rate, seed, quick))


def _best(found: FoundCells, shares: str, method: str) -> str | None:
    return best_at(found, f"{shares}/{method}", RATES[method], chosen_by)


def _table(found: FoundCells) -> ResultTable:
    rows, stems = [], []
    for shares in SHARES:
        for method in METHODS:
            stems.append(stem := _best(found, shares, method))
            ends = "empty" if stem is None else found.text(stem, ACCURACY, 100)
            rows.append((shares, method, rate_of(stem), ends, told(found, stem, _reaching)))
    return ResultTable(
        "FedBuff, FedAsync and FedAvg with equal and skewed shares, each at its best rate",
        ("shares", "method", "rate", "accuracy (%)", f"s to {TARGET:.0%}"),
        tuple(rows),
        tuple(filter(None, (edges(found, stems, SERVER), EXPECTED, _came(found)))),
        keys=2,
    )


EXPECTED = (
    "expected (Nguyen et al. 2022): FedBuff comes to a target before FedAvg, which waits for the "
    "slowest, and skewed shares harm FedAsync, which takes one client at a time, most"
)


def _came(found: FoundCells) -> str:
    """By times to the target, and by what skew costs in accuracy."""
    if found.empty:
        return "found: not all cells are there yet"
    times, lost = {}, {}
    for method in METHODS:
        stems = {shares: _best(found, shares, method) for shares in SHARES}
        times[method] = mean_score(found, stems["skewed"], _reaching)
        ends = {
            s: 100 * (found.mean(stem or "", ACCURACY, 0.1) or 0.1) for s, stem in stems.items()
        }
        lost[method] = ends["equal"] - ends["skewed"]
    sooner = times["FedBuff"] < times["FedAvg"]
    most = max(lost, key=lambda method: lost[method])
    took = ", ".join(f"{m} {told(found, _best(found, 'skewed', m), _reaching)}" for m in METHODS)
    points = ", ".join(f"{method} {points:.1f}" for method, points in lost.items())
    return (
        f"found: with skewed shares FedBuff is {'' if sooner else 'not '}at {TARGET:.0%} before "
        f"FedAvg (seconds: {took}); skew costs {most} most (points: {points})"
    )


def _draw(found: FoundCells, folder: Path) -> list[Path]:
    form = " (quick form, a stand-in)" if found.quick else ""
    figure, grid = panels(2, f"20 clients of different speeds{form}: validation accuracy")
    for axes, shares in zip(grid, SHARES, strict=True):
        for method, colour in zip(METHODS, COLOURS, strict=False):
            stem = _best(found, shares, method)
            if stem is not None:
                cells = found.matching(f"{stem}/seed=*")
                label = f"{method}, rate {rate_of(stem):g}"
                along(axes, cells, "time_s", ACCURACY, colour, label, scale=100)
        axes.axhline(100 * TARGET, color="grey", linewidth=0.8, ls=":")
        axes.set_title(f"{shares} shares", fontsize=10)
        axes.set_xlabel("virtual time (s)")
        axes.set_ylabel("validation accuracy (%)")
        axes.set_ylim(None if found.quick else 50, 100)
        legend(axes)
    return [written(figure, folder / "federated.png")]


federated = Study(
    "federated",
    "FedBuff, FedAsync and FedAvg with equal and skewed shares of the data: no claim of the 24",
    lambda: list(_cells(False)),
    lambda: list(_cells(True)),
    _table,
    _draw,
)
