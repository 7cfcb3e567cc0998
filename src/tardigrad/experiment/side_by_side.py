"""Executing many cells: one after another, stacked on a GPU, or in processes of their own.

Cells that agree in policy, cluster, link, updates, shards and seed are executed on one schedule,
made once. Each cell is a run of its own with one thread of torch, so its bits are those of a single
run with one thread, whatever stands beside it and however many processes there are.

**Choice**: on a CPU, cells are spread over processes. Stacking them as one more batched dimension
gains nothing there: the workers' gradients are batched already, and a core that is busy with one
cell is as busy with two. On a GPU, cells that share a schedule and a model and are left to the
fast engine are stacked (`engine.fast.stack`), as many as its memory holds: they may differ in the
rule and its coefficients and in `task.seed`. Others follow one another where each keeps the GPU
busy, else several have a process each (`sharing`). A stacked cell is its single run but for the
last bits of its gradients, which depend on the size of a batch.
"""

import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from tardigrad.core.checks import count
from tardigrad.engine.observer import Watch
from tardigrad.engine.run import Say
from tardigrad.experiment.cells import Experiment, Outcome, RunCell, outcome_of
from tardigrad.experiment.processes import in_processes
from tardigrad.experiment.sharing import AtOnce, at_once, device_of_runs
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.stacked import alike, may_stack, outcomes_of_stack, stacks
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Task


class CellProgress:
    """Told how many cells go; each method does nothing here."""

    def planned(self, cells: int, jobs: int) -> None:
        """Before the first: how many there are, and how many at a time."""

    def began(self, cell: RunCell, schedule: Schedule | None) -> Watch | None:
        """Before a cell is executed in this process; returns who watches its updates."""

    def ended(self, outcome: Outcome) -> None:
        """After each cell, whoever executed it."""


def default_jobs(cells: Sequence[RunCell]) -> int:
    """As many processes as cores; one where a task is not on the CPU: others are asked about first
    (`sharing`)."""
    if any(device_of_runs(cell.runs).type != "cpu" for cell in cells):
        return 1
    return min(len(cells), os.cpu_count() or 1)


def execute_cells(
    cells: Sequence[RunCell],
    jobs: int | None = 1,
    say: Say | None = None,
    progress: CellProgress | None = None,
) -> Generator[Outcome, None, None]:
    """Execute every cell, `jobs` at a time; outcomes as they come. None: a job per core, on a GPU
    as many as make use of it.

    More than one job means processes that import the main module again, so a script that calls
    this needs `if __name__ == "__main__":`. Processes divide the machine's free memory evenly
    where a cell has no budget of its own. `say` is told, a line at a time, how they are executed.
    """
    if jobs is not None:
        count("jobs", jobs)
    chosen, jobs = jobs is None, min(jobs or default_jobs(cells), len(cells))
    say, progress = say or (lambda line: None), progress or CellProgress()
    progress.planned(len(cells), jobs)
    firsts = _first_of_each(cells)
    if jobs > 1:
        say(f"{len(cells)} runs, {jobs} at a time, each in a process of its own")
        return in_processes(_scheduled(cells), firsts, jobs, _check, _execute)
    with _one_thread():
        for cell in firsts:
            _check(cell)
    if chosen and any(device_of_runs(cell.runs).type == "cuda" for cell in cells):
        return _on_gpu(cells, say, progress)
    if not any(may_stack(cell.runs) for cell in cells):
        say(f"{len(cells)} runs one after another")
    return _here(cells, say, progress)


def _first_of_each(cells: Sequence[RunCell]) -> list[RunCell]:
    """Of those that differ in the seed alone the first, which stands for all when they are checked;
    those that share a task are together."""
    firsts: dict[tuple[str, str], RunCell] = {}
    for cell in cells:
        point = {name: value for name, value in cell.point.items() if name != "seed"}
        firsts.setdefault((cell.label, json.dumps(point, sort_keys=True, default=str)), cell)
    together = _together(list(firsts.values()), lambda runs: runs.learned)
    return [cell for sharing in together for cell in sharing]


def _check(cell: RunCell) -> None:
    """Refuse what can be refused before anything is executed."""
    with _named(cell):
        cell.runs.check(_task(cell.runs), cell.runs.make_rule())


def _on_gpu(
    cells: Sequence[RunCell], say: Say, progress: CellProgress
) -> Generator[Outcome, None, None]:
    """Stacked as far as can be; the others side by side where that makes use of the GPU."""
    left: list[RunCell] = []
    yield from _here(cells, say, progress, left)
    specs = [cell.runs for cell in left if isinstance(cell.runs, Spec) and not cell.observers]
    now = AtOnce(1, "they are looked on at, or made of Python objects")
    if len(specs) == len(left):
        kinds = {(alike(replace(spec, seed=0)), spec.rule["name"]): spec for spec in specs}
        now = at_once(list(kinds.values()), len(left))
    if now.runs > 1:
        say(
            f"{len(left)} runs, {now.runs} at a time on the GPU, each in a process of its own: "
            f"{now.why}"
        )
        yield from in_processes(_scheduled(left), left[:1], now.runs, _check, _execute)
    elif left:
        say(f"{len(left)} runs one after another: {now.why}")
        with _one_thread():
            for sharing, schedule in _scheduled(left):
                for cell in sharing:
                    yield _execute(cell, schedule, progress.began(cell, schedule))


def _scheduled(cells: Sequence[RunCell]) -> Iterator[tuple[list[RunCell], Schedule | None]]:
    """The cells that share a schedule, and that schedule; so it can go before the next is made."""
    for together in _together(cells, lambda runs: runs.control):
        yield together, together[0].runs.make_schedule()


def _together(cells: Sequence[RunCell], key: Callable[[Experiment], str]) -> list[list[RunCell]]:
    """The cells by what they agree in."""
    out: dict[str, list[RunCell]] = {}
    for cell in cells:
        out.setdefault(key(cell.runs), []).append(cell)
    return list(out.values())


def _here(
    cells: Sequence[RunCell],
    say: Say,
    progress: CellProgress,
    left: list[RunCell] | None = None,
) -> Generator[Outcome, None, None]:
    """In this process. What is not stacked goes to `left`, where there is one, unexecuted."""
    with _one_thread():
        for sharing, schedule in _scheduled(cells):
            for together in _together(sharing, alike):
                yield from _stacked(together, schedule, say, progress, left)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Around cells that are executed here; what they share goes with it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _last_task.clear()


def _stacked(
    together: list[RunCell],
    schedule: Schedule | None,
    say: Say,
    progress: CellProgress,
    left: list[RunCell] | None,
) -> Generator[Outcome, None, None]:
    """Cells that agree in all but rule and seed of the task: as stacks, or one after another."""
    waiting = together
    stackable = all(may_stack(cell.runs) and cell.observers is None for cell in together)
    if schedule is not None and len(together) > 1 and stackable:
        specs = [cell.runs for cell in together if isinstance(cell.runs, Spec)]
        try:
            for part, jobs in stacks(specs, schedule, say):
                now = waiting[: len(part)]
                found = outcomes_of_stack(now, jobs)
                waiting = waiting[len(part) :]
                yield from found
        except (ValueError, torch.OutOfMemoryError) as why:
            # What is wrong with a cell itself is told again, with its name, when its turn comes.
            how = "one after another" if left is None else "not stacked"
            say(f"{len(waiting)} runs {how}: {str(why).splitlines()[0]}")
    if left is not None:
        left += waiting
        return
    for cell in waiting:
        yield _execute(cell, schedule, progress.began(cell, schedule))


def _execute(cell: RunCell, schedule: Schedule | None, watch: Watch | None = None) -> Outcome:
    with _named(cell):
        return outcome_of(cell, schedule, _task(cell.runs), watch)


@contextmanager
def _named(cell: RunCell) -> Iterator[None]:
    """What is wrong in the block is told with the cell's name."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"at {cell.label}, seed {cell.seed}: {error}") from error


def _task(runs: Experiment) -> Task:
    """The task of the cell before, where it is the same one: data sets take time to load."""
    if runs.learned not in _last_task:
        _last_task.clear()
        _last_task[runs.learned] = runs.make_task()
    return _last_task[runs.learned]


_last_task: dict[str, Task] = {}
