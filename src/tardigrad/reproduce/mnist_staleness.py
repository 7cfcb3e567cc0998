"""Staleness harms a CNN on MNIST (backup-workers paper, Figure 2 and Appendix A.1).

Four layers of 3×3 filters with weight normalisation, 25 epochs, rate 0.1 for 15 of them, then in a
straight line to 0, a running average of the parameters (0.9999), turned and zoomed images;
staleness is N − 1 with N workers that take turns. Above 15 it grows over the first three epochs,
and the rate is lower, as the paper says; how much lower it does not say (**choice**: a grid). As
there, training that explodes is begun anew from other weights, and the run that ends highest on
the validation set counts: of all rates and seeds.

**Choice**: batches of 128; the paper does not give their size. They make 10,742 updates, after
which a third of that running average still is the initial weights (0.9999^10,742 = 0.34), so what
learns slowly for its low rate is averaged to its harm. The parameters themselves are told too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.claims import NOT_YET, Verdict
from tardigrad.reproduce.drawing import error_curves
from tardigrad.reproduce.kept_cells import FoundCells, KeptCell
from tardigrad.reproduce.study import Study, StudyCell

AVERAGED = "accuracy_ema"
"""Of the running average of the parameters; `test_` or `validation_` goes before it."""
PUBLISHED_ERROR = {0: 0.36, 20: 0.47, 50: 0.79}
RATES = {0: (0.1,), 20: (0.1, 0.05, 0.02, 0.01), 50: (0.05, 0.02, 0.01, 0.005)}
QUICK_RATES = {0: (0.1,), 20: (0.02,), 50: (0.01,)}
EPOCHS, HELD, RAMP = 25, 15, 3
"""The whole; at the first rate; over which staleness grows."""


def _spec(staleness: int, lr: float, seed: int, quick: bool) -> dict[str, Plain]:
    batch, average, width = (32, 0.99, 8) if quick else (128, 0.9999, 32)
    size: dict[str, Plain] = {"train_size": 20_000} if quick else {}
    updates = 3 * 20_000 // batch if quick else EPOCHS * 55_000 // batch
    held = updates * HELD // EPOCHS
    ramp: dict[str, Plain] = {
        "name": "ramp_up",
        "updates": updates * RAMP // EPOCHS,
        "policy": {"name": "async"},
    }
    return {
        "updates": updates,
        "seed": seed,
        "evaluate_every": updates // 10,
        "splits": ["validation", "test"],
        "task": {
            "name": "mnist_cnn",
            "batch_size": batch,
            "width": width,
            "sampling": "epoch",
            **size,
        },
        "rule": {
            "name": "sgd",
            "ema": average,
            "lr": {"rate": "linear", "lr": lr, "start": held, "over": updates - held},
        },
        "policy": ramp if staleness > 15 else {"name": "async"},
        "cluster": {"name": "constant", "workers": staleness + 1},
    }


def _cells(quick: bool) -> Iterator[StudyCell]:
    for seed in (0,) if quick else (0, 1, 2):
        for staleness, grid in (QUICK_RATES if quick else RATES).items():
            for lr in grid:
                name = f"staleness={staleness}/lr={lr:g}/seed={seed}"
                yield StudyCell(name, _spec(staleness, lr, seed, quick))


class _Best(NamedTuple):
    """The run of a staleness that ends highest on the validation set, and how it tests."""

    cell: KeptCell
    error: float
    """Of the running average, in percent."""
    plain: float
    """Of the parameters themselves."""

    @property
    def lr(self) -> str:
        return self.cell.name.split("/")[1].partition("=")[2]


def _best(found: FoundCells) -> dict[int, _Best]:
    """By staleness, where every rate and seed is there and one run did not diverge."""
    best = {}
    for staleness in PUBLISHED_ERROR:
        cells = found.matching(f"staleness={staleness}/*")
        planned = [name for name in found.planned if name.startswith(f"staleness={staleness}/")]
        ended = [cell for cell in cells if not cell.diverged]
        if len(cells) < len(planned) or not ended:
            continue
        cell = max(ended, key=lambda one: float(one.figures[f"validation_{AVERAGED}"]))
        tested = (cell.figures[f"test_{AVERAGED}"], cell.figures["test_accuracy"])
        best[staleness] = _Best(cell, *(100 - 100 * accuracy for accuracy in tested))
    return best


def _table(found: FoundCells) -> ResultTable:
    best = _best(found)
    rows: list[tuple[Cell, ...]] = []
    for stem in dict.fromkeys(name.rpartition("/")[0] for name in found.planned):
        staleness = int(stem.split("/")[0].partition("=")[2])
        measures = (f"validation_{AVERAGED}", f"test_{AVERAGED}", "test_accuracy")
        accuracies = [found.text(stem, measure, 100) for measure in measures]
        chosen = best.get(staleness)
        ours = theirs = None
        if chosen is not None and chosen.cell.name.startswith(f"{stem}/"):
            ours, theirs = round(chosen.error, 2), PUBLISHED_ERROR[staleness]
        rows.append((staleness, stem.rpartition("lr=")[2], *accuracies, ours, theirs))
    return ResultTable(
        "Backup-workers paper, Figure 2: MNIST CNN, final accuracy (%) and error by staleness",
        (
            "staleness",
            "rate",
            "validation",
            "test",
            "test, not averaged",
            "best run's error",
            "published error",
        ),
        tuple(rows),
        (
            "of the running average of the parameters; ± standard deviation over seeds",
            "best run: of all rates and seeds the one that ends highest on the validation set",
        ),
        keys=2,
    )


def judge_late(found: FoundCells) -> Verdict:
    """The error grows from staleness 0 over 20 to 50; a training that fails shows nothing."""
    best = _best(found)
    if any(not found.matching(f"staleness={s}/*") for s in PUBLISHED_ERROR) or found.empty:
        return NOT_YET
    ours = "error of the best run " + ", ".join(
        f"{best[s].error:.2f}% at {s} (not averaged {best[s].plain:.2f}%)"
        if s in best
        else f"diverged at {s}"
        for s in PUBLISHED_ERROR
    )
    lost = [str(s) for s in PUBLISHED_ERROR if s not in best or best[s].error > 50]
    if lost:
        why = f"training fails at staleness {' and '.join(lost)}, where the paper's did not"
        return Verdict("does not hold", ours, why)
    errors = [one.error for one in best.values()]
    if errors != sorted(errors):
        return Verdict("does not hold", ours, "the error does not grow at every step")
    rates = " and ".join(f"{best[s].lr} at {s}" for s in PUBLISHED_ERROR if s)
    more = ""
    if best[50].error > 2 * PUBLISHED_ERROR[50]:
        more = "; at 50 it harms far more than published"
    return Verdict("holds with a choice", ours, f"lower rates, by validation: {rates}{more}")


def _draw(found: FoundCells, folder: Path) -> list[Path]:
    best = _best(found)
    lines = {f"staleness {s}, rate {one.lr}": one.cell.name for s, one in best.items()}
    return error_curves(found, folder, lines, f"test_{AVERAGED}", ["epoch"])


mnist_staleness = Study(
    "mnist-staleness",
    "The backup paper's Figure 2: a CNN on MNIST at staleness 0, 20 and 50",
    lambda: list(_cells(False)),
    lambda: list(_cells(True)),
    _table,
    _draw,
    gpu={},
    gpu_wanted=True,
)
