"""Running what a spec says, in a folder that it can go on from."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tardigrad.clusters import Clockless
from tardigrad.core.checks import require
from tardigrad.engine import Checkpoints, Diverged, Observer, Run
from tardigrad.engine.checkpoint import load_facts
from tardigrad.engine.drive import check_splits, drive
from tardigrad.engine.execute import divide
from tardigrad.engine.execution import Execution
from tardigrad.engine.observer import Watch
from tardigrad.engine.resume import CHECKPOINT, saved_chunk, saved_version
from tardigrad.engine.run import Say
from tardigrad.experiment.going_on import continued
from tardigrad.experiment.spec import Spec
from tardigrad.recording.folder import AVERAGE, PARAMS, RunFolder, check_free
from tardigrad.recording.metrics_file import MetricsFile
from tardigrad.rules.rates import Progress
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.analysis import delays_at
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
    execution: Execution | None = None
    with folder.locked(spec.toml()):  # of a run that goes on it may be another
        if going_on and schedule is not None:
            folder.save_schedule(schedule)
        # Read before the run writes it anew; what a killed one did after it is done again.
        started = time.perf_counter() - (saved_wall_s(path) if going_on else 0.0)
        try:
            execution = spec.prepare(schedule, task, rule, say)
            done = drive(
                execution,
                spec.evaluation,
                Checkpoints(path, spec.checkpoint_every, resume=going_on),
                watch=begin(schedule) if begin else None,
                say=say,
                stop=stop,
                observers=[MetricsFile(folder), *loggers, *observers],
                about=spec.data(),
            )
        except (Diverged, KeyboardInterrupt) as early:
            status = "diverged" if isinstance(early, Diverged) else "stopped"
            made = execution.schedule if execution is not None else schedule
            _keep_what_there_is(folder, made, status, str(early))
            raise
        if done.schedule is not schedule:  # made meanwhile, or not executed to its end
            folder.save_schedule(done.schedule)
        if spec.measures:
            delays = {"delay": delays_at(done.schedule, 0).tolist()}
            folder.write_gradients(delays | {n: getattr(done.history, n) for n in spec.measures})
        save_params(path, done)
        summary = summarise(done, time.perf_counter() - started)
        folder.write_summary(summary)
    return done


def _schedule_to_go_on_with(spec: Spec, folder: RunFolder) -> Schedule | None:
    """The folder's; made again where the run is to be longer, or was stopped before its end."""
    if spec.make_link().reads_deviation:
        return None
    schedule = folder.schedule()
    if schedule.updates >= spec.updates:
        return schedule
    made, saved = spec.make_schedule(), _saved_facts(folder.path)
    assert made is not None
    same = not saved or saved["schedule"] == made.digest
    require(
        same or saved.get("executed") == executed_digest(made, saved["position"]),
        f"{folder.path} cannot be extended: a run of {spec.updates} updates begins otherwise than "
        "what it has executed; write elsewhere (--out DIR)",
    )
    return made


def saved_updates(path: Path) -> int:
    """How many updates the folder's checkpoint holds; 0 where there is none yet."""
    return saved_version(_saved_facts(path))


def saved_wall_s(path: Path) -> float:
    """How long it had taken to come to the folder's checkpoint, whatever was done in between."""
    return float(_saved_facts(path).get("wall_s", 0.0))


def _saved_facts(path: Path) -> dict[str, Any]:
    checkpoint = path / CHECKPOINT
    return load_facts(checkpoint) if checkpoint.exists() else {}


def summarise(run: Run, wall_s: float) -> dict[str, Any]:
    """How a run ended, in figures: its last evaluation and what its schedule says."""
    last = run.history.records[-1] if run.history.records else {}
    return {
        "status": "finished",
        **({} if run.ended is None else {"ended_by": run.ended.by, "why": run.ended.why}),
        **schedule_facts(run.schedule),
        "final": {name: value for name, value in last.items() if name != "wall_s"},
        "wall_s": wall_s,
        "torch": torch.__version__,
    }


def schedule_facts(schedule: Schedule) -> dict[str, Any]:
    delays = schedule.delays
    mean = float(delays.mean()) if len(delays) else 0.0
    return {
        "workers": schedule.workers,
        "updates": schedule.updates,
        "gradients": len(delays_at(schedule, 0)),
        "time_s": schedule.end_time,
        "clock": schedule.clock,
        "mean_delay": mean,
        "delay_counts": torch.bincount(torch.as_tensor(delays)).tolist(),
        "dropped": int(schedule.dropped.sum()),
    }


def save_params(path: Path, run: Run) -> None:
    """The end result by tensor names, as `load_state_dict` takes it; the running average of θ, if
    there is one, in a file of the same form beside it."""
    _save(path / PARAMS, run.state_dict())
    if run.average is not None:
        _save(path / AVERAGE, run.state_dict(average=True))


def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors that share memory (tied weights) are written each on its own."""
    partial = path.with_name(path.name + ".partial")
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, partial)
    os.replace(partial, path)


def _keep_what_there_is(
    folder: RunFolder, schedule: Schedule | None, status: str, why: str
) -> None:
    """How a run stopped."""
    summary = {"status": status, "why": why, "saved_updates": saved_updates(folder.path)}
    if schedule is not None and schedule.groups:
        folder.write_summary({**schedule_facts(schedule), **summary})
