"""`tardigrad demo`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.cells import next_free, watched
from tardigrad.cli.console import out, tell
from tardigrad.cli.report import show_results
from tardigrad.core.checks import require
from tardigrad.experiment import Entry, Spec, compare_entries
from tardigrad.report import page as pages

WORKERS = 16
GRADIENTS = 6400
TARGET = 0.4

TASK = {"name": "mnist_mlp", "batch_size": 8}
RULES = {
    "ASGD": {"name": "sgd", "lr": 0.04},
    "SASGD": {"name": "staleness_aware", "lr": 0.04},
    "FASGD": {"name": "fasgd", "lr": 0.005},
    "DC-ASGD": {"name": "delay_compensated", "lr": 0.04, "adaptive": True},
    "Gap-Aware": {"name": "gap_aware", "lr": 0.01},
    "DANA-GA": {"name": "dana_ga", "lr": 0.01},
}
"""FASGD and SASGD at the rates of the FASGD paper."""
SHOWN = ("synchronous SGD", "ASGD")
"""Whose timelines are drawn; all other rules have ASGD's, and a sequential run has one lane."""


def demo(
    to: Annotated[
        Path | None, typer.Option("--out", help="The folder [runs/demo, or the next free].")
    ] = None,
    gradients: Annotated[
        int, typer.Option("--gradients", help="How many gradients each rule gets to apply.")
    ] = GRADIENTS,
) -> None:
    """Compare six rules on real MNIST with 16 simulated workers, in about a minute and a half.

    All six meet the same late gradients: one asynchronous schedule, the same batches. Beside them
    stand sequential SGD (one worker) and synchronous SGD (the mean of 16 gradients per update),
    with step times from the same draws. Everybody applies the same number of gradients.
    """
    require(gradients >= WORKERS, f"gradients must be at least {WORKERS}, got {gradients}")
    spec = demo_spec(gradients)
    folder = to or next_free(Path("runs/demo"))
    tell(
        f"MNIST, perceptron 784-200-10, batches of 8: {gradients:,} gradients from each of "
        "1 sequential, 16 synchronous and 16 asynchronous workers"
    )
    compared = {entry.label: entry.spec for entry in demo_entries(spec, gradients)}
    with watched(folder, many=False) as bars:
        found = compare_entries(compared, folder=folder, progress=bars, about=spec, shown=SHOWN)
    show_results(found, folder, TARGET)
    _show_asynchrony(folder, gradients)
    out.print(f"everything is in {folder}")


def _show_asynchrony(folder: Path, gradients: int) -> None:
    """What to notice, and the page."""
    first, *others = pages.runs_in(folder)
    again = "tardigrad demo" + (f" --gradients {gradients}" if gradients != GRADIENTS else "")
    runs = [replace(first, command=again), *others]
    out.print("\nwhat to notice:")
    for sentence in pages.notices(runs):
        out.print(f"- {sentence}")
    page = pages.write_page(runs, folder / pages.PAGE, f"{first.title} and synchronous")
    out.print(f"\npage: {page} (open it in a browser: timelines, a player, curves)")


def demo_spec(gradients: int) -> Spec:
    return Spec(
        updates=gradients,
        task=TASK,
        rule=RULES["ASGD"],
        cluster={"name": "gamma", "workers": WORKERS, "mean_s": 8.0},
        engine="exact",
    )


def demo_entries(spec: Spec, gradients: int) -> list[Entry]:
    alone = {**spec.cluster, "workers": 1}
    rounds = gradients // WORKERS
    together = replace(
        spec, policy={"name": "sync"}, updates=rounds, evaluate_every=max(1, rounds // 20)
    )
    return [
        Entry("sequential SGD", replace(spec, cluster=alone)),
        # 16 gradients make one step: the rate grows with them (linear scaling), as far as it may.
        Entry("synchronous SGD", replace(together, rule={"name": "sgd", "lr": 0.2})),
        *(Entry(label, replace(spec, rule=rule)) for label, rule in RULES.items()),
    ]
