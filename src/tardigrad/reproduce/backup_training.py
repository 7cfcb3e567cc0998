"""Synchronous training with backups ends better than asynchronous (backup-workers paper, Figures 8
and 9).

The paper's models, Inception and PixelCNN, are not here, so ResNet-20 on CIFAR-10 stands in.
RMSprop with momentum as there; the synchronous rate is N times the asynchronous, both fall
exponentially with the samples.
"""

from collections.abc import Iterator
from pathlib import Path

from tardigrad.core.result_table import ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.claims import NOT_YET, Verdict
from tardigrad.reproduce.drawing import error_curves
from tardigrad.reproduce.gap_aware_tables import GPU
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.study import Study, StudyCell

AVERAGED = "test_accuracy_ema"
ASYNC, BACKUP, SYNC = "async", "backup", "sync"


def _backup(kind: str, seed: int, quick: bool) -> dict[str, Plain]:
    """17 machines: 16 + 1 backup, all 17 waited for, or nobody."""
    machines = 17
    needed = {ASYNC: 1, BACKUP: machines - 1, SYNC: machines}[kind]
    gradients = 12_000 if quick else 60 * 50_000 // 128
    task: dict[str, Plain] = {"name": "cifar10_resnet20", "batch_size": 128, "validation": 0}
    lr = 1e-4
    if quick:
        task, lr = {"name": "mnist_mlp", "hidden": 64, "batch_size": 16}, 3e-5
    updates = gradients // needed
    return {
        "updates": updates,
        "seed": seed,
        "evaluate_every": max(1, updates // 20),
        "splits": ["test"],
        "task": {**task, "sampling": "epoch"},
        "rule": {
            "name": "rmsprop",
            "alpha": 0.9,
            "momentum": 0.9,
            "ema": 0.99 if quick else 0.999,
            "lr": {"rate": "exponential", "lr": lr * needed, "decay": 0.1, "over": updates},
        },
        "policy": {"name": kind, **({"backups": 1} if kind == BACKUP else {})},
        "cluster": {"name": "stragglers", "workers": machines},
    }


def _backup_cells(quick: bool) -> Iterator[StudyCell]:
    for seed in (0, 1, 2):
        for kind in (BACKUP, ASYNC, SYNC):
            yield StudyCell(f"{kind}/seed={seed}", _backup(kind, seed, quick))


def _backup_table(found: FoundCells) -> ResultTable:
    return ResultTable(
        "Backup-workers paper, Figures 8 and 9: 17 machines, test accuracy (%), a stand-in",
        ("policy", "accuracy", "averaged", "virtual time (s)", "dropped", "updates"),
        tuple(
            (
                kind,
                found.text(kind, "test_accuracy", 100),
                found.text(kind, AVERAGED, 100),
                found.mean(kind, "time_s"),
                found.mean(kind, "dropped"),
                found.mean(kind, "updates"),
            )
            for kind in (BACKUP, ASYNC, SYNC)
        ),
        ("as many gradients applied by all; averaged: of the running average of the parameters",),
    )


def judge_backup(found: FoundCells) -> Verdict:
    """With one backup it ends above asynchronous training, sooner than waiting for everybody."""
    ends = {kind: found.mean(kind, AVERAGED, 0.1) for kind in (BACKUP, ASYNC, SYNC)}
    times = {kind: found.mean(kind, "time_s") for kind in (BACKUP, ASYNC, SYNC)}
    known = {kind: end for kind, end in ends.items() if end is not None}
    if len(known) < 3:
        return NOT_YET
    took = {kind: seconds or 0.0 for kind, seconds in times.items()}
    ours = ", ".join(f"{k} {100 * e:.2f}% in {took[k]:,.0f} s" for k, e in known.items())
    wrong = []
    if known[BACKUP] <= known[ASYNC]:
        wrong.append("it does not end above asynchronous training")
    if took[BACKUP] >= took[SYNC]:
        wrong.append("it takes no less time than waiting for all")
    if wrong:
        return Verdict("does not hold", ours, "; ".join(wrong))
    return Verdict("holds with a choice", ours, "a stand-in for Inception and PixelCNN")


def _backup_draw(found: FoundCells, folder: Path) -> list[Path]:
    lines = {kind: f"{kind}/seed=*" for kind in (BACKUP, ASYNC, SYNC)}
    return error_curves(found, folder, lines, AVERAGED, ["epoch", "time_s"])


backup_over_async = Study(
    "backup-over-async",
    "The backup paper's Figures 8 and 9: synchronous with a backup against asynchronous",
    lambda: list(_backup_cells(False)),
    lambda: list(_backup_cells(True)),
    _backup_table,
    _backup_draw,
    GPU,
    gpu_wanted=True,
)
