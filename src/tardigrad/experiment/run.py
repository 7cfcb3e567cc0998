"""Running what a spec says, in a folder that it can go on from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tardigrad.clusters import Clockless
from tardigrad.core.checks import require
from tardigrad.engine import Checkpoints, Observer, Run
from tardigrad.engine.drive import check_splits, drive
from tardigrad.engine.execute import check_weights, divide
from tardigrad.engine.observer import Watch
from tardigrad.engine.resume import saved_chunk, saved_facts
from tardigrad.engine.run import Say
from tardigrad.experiment.going_on import continued
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.trusted_code import note_code
from tardigrad.recording.folder import RunFolder, check_free
from tardigrad.rules.rates import Progress
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

    Nothing is written before all that can be checked has been. A run that stops early (Ctrl-C, a
    loss that is not a number) leaves a checkpoint and the metrics so far; Ctrl-C makes one first.
    """
    path = Path(path)
    going_on = resume and path.exists()
    if not going_on:
        check_free(path, resumes=True)
    else:
        spec = continued(spec, RunFolder.open(path))
        if spec.chunk is None:
            spec = replace(spec, chunk=saved_chunk(path))
    assert spec.checkpoint_every is not None
    stop, loggers = spec.make_stop(), spec.make_loggers(path)
    task, rule = spec.make_task(), spec.make_rule()
    check_splits(task, spec.evaluation)
    divide(task, rule, spec.shards, spec.shard_by)
    check_weights(rule, spec.make_policy())
    rule.scalars(Progress(epoch_size=task.epoch_size))
    if stop is not None:
        clock = "events" if isinstance(spec.make_cluster(), Clockless) else "virtual"
        stop.check(task, spec.evaluation, spec.updates, clock)
    if going_on:
        folder = RunFolder.open(path)
        schedule = _schedule_to_go_on_with(spec, folder)
    else:
        schedule = spec.make_schedule()
        folder = RunFolder.create(path, spec.toml(), schedule)
    note_code(spec)
    with folder.locked(spec.toml()):  # of a run that goes on it may be another
        if going_on and schedule is not None:
            folder.save_schedule(schedule)
        return drive(
            spec.prepare(schedule, task, rule, say),
            spec.evaluation,
            Checkpoints(path, spec.checkpoint_every, resume=going_on),
            watch=begin(schedule) if begin else None,
            say=say,
            stop=stop,
            observers=[*loggers, *observers],
            about=spec.data(),
        )


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
