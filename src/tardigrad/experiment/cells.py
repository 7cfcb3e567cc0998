"""One run of a comparison or a sweep: which, and what it came to.

Randomness is keyed, so that cells with the same cluster and seed meet the same step times, and
with the same task the same batches, whatever else differs between them.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tardigrad.core.used_code import used_code
from tardigrad.engine import Diverged, Evaluation, Observer, Run, Stop
from tardigrad.engine.drive import drive
from tardigrad.engine.execution import Execution
from tardigrad.engine.observer import Watch
from tardigrad.engine.result_files import schedule_facts, summarise
from tardigrad.experiment.structure import Plain
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.prefix import first_updates
from tardigrad.tasks import Task


class Experiment(Protocol):
    """What a cell runs: a `Spec`, or a `PythonExperiment`."""

    @property
    def seed(self) -> int: ...
    @property
    def control(self) -> str:
        """Those that agree in it share a schedule."""
        ...

    @property
    def learned(self) -> str:
        """Those that agree in it share a task."""
        ...

    @property
    def scheduled_ahead(self) -> bool:
        """Whether its schedule does not depend on tensors; else every run makes its own."""
        ...

    @property
    def evaluation(self) -> Evaluation: ...
    def make_schedule(self) -> Schedule | None: ...
    def make_task(self) -> Task: ...
    def make_rule(self) -> Rule: ...
    def make_stop(self) -> Stop | None: ...
    def make_loggers(self, folder: Path) -> list[Observer]: ...
    def check(self, task: Task, rule: Rule) -> None:
        """Refuse what can be refused before its schedule is made."""
        ...

    def prepare(self, schedule: Schedule | None, task: Task, rule: Rule) -> Execution: ...
    def limited_to(self, memory_gib: float) -> "Experiment": ...
    def data(self) -> dict[str, Plain]: ...


MakeObservers = Callable[[str, int], Sequence[Observer]]
"""By the label and the seed of a run, its observers; made where it is run."""


class RunCell(NamedTuple):
    """One run. Cells of one label differ in their seeds."""

    label: str
    runs: Experiment
    place: int = 0
    """Its number among all: they may end in another order."""
    point: Mapping[str, Plain] = {}
    """What it sets, in a sweep."""
    folder: Path | None = None
    """Where its loggers write."""
    observers: MakeObservers | None = None
    shown: bool = False
    """Whether its outcome brings its schedule, for a timeline."""

    @property
    def seed(self) -> int:
        return self.runs.seed


class Outcome(NamedTuple):
    """What one cell came to."""

    label: str
    seed: int
    records: list[dict[str, float]]
    summary: dict[str, Any]
    point: Mapping[str, Plain] = {}
    place: int = 0
    schedule: Schedule | None = None
    """Of a cell that is shown."""


def outcome_of(
    cell: RunCell, schedule: Schedule | None, task: Task, watch: Watch | None = None
) -> Outcome:
    """Execute one cell; one that diverges has no records and a summary that says why."""
    started, runs = time.perf_counter(), cell.runs
    observers = [] if cell.folder is None else runs.make_loggers(cell.folder)
    observers += cell.observers(cell.label, cell.seed) if cell.observers else []
    shared = meets(cell) if schedule is not None else {}  # by tensors it is each run's own
    execution = runs.prepare(schedule, task, runs.make_rule())
    try:
        run = drive(
            execution,
            runs.evaluation,
            watch=watch,
            stop=runs.make_stop(),
            observers=observers,
            about=runs.data(),
        )
    except Diverged as diverged:
        return diverged_outcome(cell, diverged, execution.schedule, shared)
    summary = summarise(run, time.perf_counter() - started) | shared
    if own := own_digests(task, execution.rule):
        summary["own_code"] = own
    return ended_outcome(cell, run, summary)


def ended_outcome(cell: RunCell, run: Run, summary: dict[str, Any]) -> Outcome:
    records, made = run.history.records, run.schedule if cell.shown else None
    return Outcome(cell.label, cell.seed, records, summary, cell.point, cell.place, made)


def diverged_outcome(
    cell: RunCell, diverged: Diverged, schedule: Schedule, shared: dict[str, str]
) -> Outcome:
    facts = schedule_facts(first_updates(schedule, diverged.update)) | shared
    summary = {"status": "diverged", "why": str(diverged), "at": diverged.update, **facts}
    made = schedule if cell.shown else None
    return Outcome(cell.label, cell.seed, [], summary, cell.point, cell.place, made)


def meets(cell: RunCell) -> dict[str, str]:
    """Marks of the schedule and of the task, which gives batches and initial weights: cells that
    share them met the same ones."""
    texts = (cell.runs.control, cell.runs.learned)
    return {"meets": "-".join(hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts)}


def own_digests(*parts: object) -> dict[str, str]:
    """Of the user's own files that the parts are made of."""
    found = used_code(*parts)
    return {n: d for n, d in found.items() if n.endswith(".py") and not n.startswith("tardigrad/")}
