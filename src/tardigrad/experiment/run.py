"""Running what a spec says, in a folder that it can go on from."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tardigrad.core.checks import require
from tardigrad.core.layout import Layout
from tardigrad.engine import Checkpoints, Diverged, Run
from tardigrad.engine.checkpoint import load_facts
from tardigrad.engine.drive import check_splits, drive
from tardigrad.engine.execute import divide
from tardigrad.engine.execution import Execution
from tardigrad.engine.observer import Watch
from tardigrad.engine.resume import CHECKPOINT, saved_chunk
from tardigrad.engine.run import Say
from tardigrad.experiment.spec import Spec, differences, with_new_keys
from tardigrad.recording.folder import PARAMS, RunFolder, check_free
from tardigrad.rules.rates import Progress
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.analysis import delays_at

Begin = Callable[[Schedule | None], Watch | None]
"""Told of the schedule before it is executed (None where it is made meanwhile); returns who watches
that."""


def run(
    spec: Spec,
    path: str | Path,
    resume: bool = False,
    begin: Begin | None = None,
    say: Say | None = None,
) -> Run:
    """Run the spec in a new folder, or with `resume` go on with the one that is there.

    `say` is told, in a line each, which engine was picked and why.

    Nothing is written before all that can be checked has been. A run that stops early (Ctrl-C, a
    loss that is not a number) leaves its last checkpoint and the metrics up to it.
    """
    path = Path(path)
    going_on = resume and path.exists()
    if not going_on:
        check_free(path, resumes=True)
    else:
        check_same(spec, RunFolder.open(path))
        if spec.chunk is None:
            spec = replace(spec, chunk=saved_chunk(path))
    assert spec.checkpoint_every is not None
    task, rule = spec.make_task(), spec.make_rule()
    check_splits(task, spec.evaluation)
    divide(task, rule, spec.shards, spec.shard_by)
    rule.scalars(Progress(epoch_size=task.epoch_size))
    if going_on:
        folder = RunFolder.open(path)
        schedule = None if spec.make_link().reads_deviation else folder.schedule()
    else:
        schedule = spec.make_schedule()
        folder = RunFolder.create(path, spec.toml(), schedule)
    execution: Execution | None = None
    with folder.locked():
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
            )
        except (Diverged, KeyboardInterrupt) as stop:
            status = "diverged" if isinstance(stop, Diverged) else "stopped"
            made = execution.schedule if execution is not None else schedule
            _keep_what_there_is(folder, made, status, str(stop))
            raise
        if schedule is None:
            folder.save_schedule(done.schedule)
        if spec.measures:
            delays = {"delay": delays_at(done.schedule, 0).tolist()}
            folder.write_gradients(delays | {n: getattr(done.history, n) for n in spec.measures})
        save_params(path / PARAMS, done, task.layout)
        summary = summarise(done, time.perf_counter() - started)
        folder.write_results(done.history.records, summary)
    return done


def saved_updates(path: Path) -> int:
    """How many updates the folder's checkpoint holds; 0 where there is none yet."""
    shards = _saved_facts(path).get("shards", ())
    return min((int(shard["version"]) for shard in shards), default=0)


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


def save_params(path: Path, run: Run, layout: Layout) -> None:
    """The end result by tensor names; averaged parameters and running buffers beside them."""
    tensors = dict(layout.unflatten(run.params))
    if run.average is not None:
        tensors |= {f"ema.{n}": t for n, t in layout.unflatten(run.average).items()}
    tensors |= {f"buffer.{i}": tensor for i, tensor in enumerate(run.buffers)}
    partial = path.with_name(path.name + ".partial")
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, partial)
    os.replace(partial, path)


def check_same(spec: Spec, folder: RunFolder) -> None:
    require(not folder.outcomes(), f"{folder.path} holds a comparison, which cannot be resumed")
    # How safe a log is may be decided anew: it changes nothing in the result.
    recorded = {**with_new_keys(folder.spec()), "sync_log": spec.sync_log}
    different = differences(recorded, spec.data())
    require(
        not different,
        f"{folder.path} was started with another spec, so it cannot be resumed with this one: "
        f"{', '.join(different)} {'differs' if len(different) == 1 else 'differ'}; "
        "use the values in its spec.toml, or write elsewhere (--out DIR)",
    )


def _keep_what_there_is(
    folder: RunFolder, schedule: Schedule | None, status: str, why: str
) -> None:
    """Metrics of a run that stopped: those of its last checkpoint."""
    records = _saved_facts(folder.path).get("records", [])
    summary = {"status": status, "why": why, "saved_updates": saved_updates(folder.path)}
    if schedule is not None and schedule.groups:
        folder.write_results(records, {**schedule_facts(schedule), **summary})
