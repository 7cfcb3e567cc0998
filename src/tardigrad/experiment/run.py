"""Running what a spec says, in a folder that it can go on from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tardigrad.core.checks import require
from tardigrad.engine import Checkpoints, Observer, Run
from tardigrad.engine.drive import drive
from tardigrad.engine.execution import Execution
from tardigrad.engine.observer import Watch
from tardigrad.engine.resume import saved_chunk, saved_facts
from tardigrad.engine.run import Say
from tardigrad.experiment.going_on import check_simulated, continued
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.trusted_code import note_code
from tardigrad.recording.folder import RunFolder, check_free
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.prefix import executed_digest

Begin = Callable[[Schedule | None], Watch | None]
"""Told of the schedule before it is executed (None where it is made meanwhile); returns who watches
that."""


def run(
    spec: Spec,
    path: str | Path,
    resume: bool = False,
    begin: Begin | None = None,
    say: Say | None = None,
    observers: Sequence[Observer] = (),
) -> Run:
    """Run the spec in a new folder, or with `resume` go on with the one that is there.

    `say` is told, in a line each, which engine was picked and why; `observers` look on beside the
    loggers of the spec. Going on, the spec may have more updates, and end and log otherwise.

    Nothing is written before all that can be checked has been, and an engine has taken the run. A
    run that stops early (Ctrl-C, a loss that is not a number) leaves a checkpoint and the metrics
    so far; Ctrl-C makes one first.
    """
    path = Path(path)
    if not (resume and path.exists()):
        check_free(path, resumes=True)
        ready = _ready(spec, path, spec.make_schedule, say)
        folder = RunFolder.create(path, spec.toml(), ready.schedule)
        note_code(spec)
        with folder.locked():
            return ready.drive(Checkpoints(path, spec.checkpoint_every or 0), begin, say, observers)
    folder = RunFolder.open(path)
    check_simulated(folder)
    with folder.locked() as save_spec:
        spec = continued(spec, folder)
        if spec.chunk is None:
            spec = replace(spec, chunk=saved_chunk(path))
        ready = _ready(spec, path, lambda: _schedule_to_go_on_with(spec, folder), say)
        note_code(spec)
        save_spec(spec.toml())  # of a run that goes on it may be another
        if ready.schedule is not None:
            folder.save_schedule(ready.schedule)
        saving = Checkpoints(path, spec.checkpoint_every or 0, resume=True)
        return ready.drive(saving, begin, say, observers)


class _Ready(NamedTuple):
    """A run that nothing refuses any more."""

    spec: Spec
    loggers: list[Observer]
    schedule: Schedule | None
    execution: Execution

    def drive(
        self,
        saving: Checkpoints,
        begin: Begin | None,
        say: Say | None,
        observers: Sequence[Observer],
    ) -> Run:
        return drive(
            self.execution,
            self.spec.evaluation,
            saving,
            watch=begin(self.schedule) if begin else None,
            say=say,
            stop=self.spec.make_stop(),
            observers=[*self.loggers, *observers],
            about=self.spec.data(),
        )


def _ready(
    spec: Spec, path: Path, make_schedule: Callable[[], Schedule | None], say: Say | None
) -> _Ready:
    loggers, task, rule = spec.make_loggers(path), spec.make_task(), spec.make_rule()
    spec.check(task, rule)
    schedule = make_schedule()
    return _Ready(spec, loggers, schedule, spec.prepare(schedule, task, rule, say))


def _schedule_to_go_on_with(spec: Spec, folder: RunFolder) -> Schedule | None:
    """The folder's; made again where the run is to be longer, or was stopped before its end."""
    if spec.make_link().reads_deviation:
        return None
    schedule = folder.schedule()
    if schedule.updates >= spec.updates:
        return schedule
    made, saved = spec.make_schedule(), saved_facts(folder.path)
    assert made is not None
    same = not saved or saved["schedule"] == made.digest
    require(
        same or saved.get("executed") == executed_digest(made, saved["position"]),
        f"{folder.path} cannot be extended: a run of {spec.updates} updates begins otherwise than "
        "what it has executed; write elsewhere (--out DIR)",
    )
    return made
