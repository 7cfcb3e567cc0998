"""What delay compensation adds to an update's time (DC-ASGD paper, Figure 3: curves over seconds).

The same schedule of 8 workers for ASGD and both forms of DC-ASGD, slices of them in turn, of which
the median. Time is what one thread computes, not what passes: a busy machine adds to the latter.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import torch

from tardigrad.clusters import Gamma
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.execute import prepare
from tardigrad.experiment.spec import rule_of
from tardigrad.reproduce.claims import NOT_YET, Verdict
from tardigrad.reproduce.dc_asgd import LATE
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.study import Study, StudyCell
from tardigrad.scheduling import schedule
from tardigrad.tasks import TASKS

RULES = ("ASGD", "DC-ASGD-c", "DC-ASGD-a")
CLOSE = 1.1
"""What "very similar" is taken for: a tenth more at most."""


def update_times(
    folder: Path, task: str, batch_size: int, updates: int, slices: int
) -> dict[str, Any]:
    """Milliseconds an update, by rule; `updates` in each of the slices."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _medians(task, batch_size, updates, slices)
    finally:
        torch.set_num_threads(threads)


def _medians(task: str, batch_size: int, updates: int, slices: int) -> dict[str, Any]:
    made = TASKS[task](batch_size=batch_size, seed=0)
    order = schedule(cluster=Gamma(workers=8), updates=updates * (slices + 1))
    going = {
        name: prepare(order, made, rule_of({**LATE[name], "lr": 0.01}, {}), "exact")
        for name in RULES
    }
    took: dict[str, list[float]] = {name: [] for name in RULES}
    for turn in range(slices + 1):
        for name, execution in going.items():
            started = time.process_time()
            execution.advance_to((turn + 1) * updates)
            took[name].append(1e3 * (time.process_time() - started) / updates)
    return {name: statistics.median(times[1:]) for name, times in took.items()}


def _cell(task: str, batch_size: int, updates: int, slices: int) -> StudyCell:
    asks = {"task": task, "batch_size": batch_size, "updates": updates, "slices": slices}
    return StudyCell(f"{task},batch={batch_size}", asks, update_times)


def _table(found: FoundCells) -> ResultTable:
    rows = []
    for name in found.planned:
        times = [found.value(name, rule) for rule in RULES]
        first = times[0]
        rows.append(
            (
                name,
                *("empty" if t is None else round(t, 3) for t in times),
                *(None if t is None or first is None else round(t / first, 3) for t in times[1:]),
            )
        )
    return ResultTable(
        "DC-ASGD: milliseconds an update, 8 workers, and over ASGD's",
        ("task", *RULES, "c ÷ ASGD", "a ÷ ASGD"),
        tuple(rows),
        ("the exact engine, computing time of one thread: gradient, then update",),
    )


def judge_time(found: FoundCells) -> Verdict:
    """An update of the model that the paper trains takes at most CLOSE times ASGD's."""
    name = found.planned[0]
    cell = found.cells.get(name)
    if cell is None:
        return NOT_YET
    ratios = {rule: cell.figures[rule] / cell.figures["ASGD"] for rule in RULES[1:]}
    ours = ", ".join(f"{rule} {ratio:.2f}" for rule, ratio in ratios.items()) + f" ({name})"
    wrong = [rule for rule, ratio in ratios.items() if ratio > CLOSE]
    if wrong:
        return Verdict("does not hold", ours, f"{' and '.join(wrong)} take over a tenth more")
    return Verdict("holds", ours)


update_time = Study(
    "dc-asgd-time",
    "DC-ASGD: the time of an update over ASGD's",
    lambda: [_cell("cifar10_resnet20", 128, 4, 7), _cell("mnist_mlp", 8, 200, 15)],
    lambda: [_cell("mnist_cnn", 128, 10, 7), _cell("mnist_mlp", 8, 100, 9)],
    _table,
)
