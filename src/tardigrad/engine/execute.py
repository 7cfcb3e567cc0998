"""Executing a schedule: pick an engine, evaluate on the way, save and go on."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from tardigrad.checks import count, one_of, require
from tardigrad.clusters import Cluster
from tardigrad.engine.checkpoint import load_checkpoint, save_checkpoint
from tardigrad.engine.exact import Exact
from tardigrad.engine.run import Diverged, Run
from tardigrad.layout import Sharding
from tardigrad.policies import Policy
from tardigrad.rules import Gap, Rule
from tardigrad.schedule import Schedule, schedule, validate
from tardigrad.tasks import Task

CHECKPOINT = "checkpoint.safetensors"
Engine = Literal["auto", "exact"]


class Tick(NamedTuple):
    """Where an execution stands, for whoever watches."""

    updates: int
    total: int
    loss: float


Watch = Callable[[Tick], None]


def execute(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    engine: Engine = "auto",
    *,
    shard_by: Literal["slice", "tensor"] = "slice",
    evaluate_every: int = 0,
    splits: Sequence[str] = ("validation",),
    gap: bool = False,
    folder: Path | None = None,
    checkpoint_every: int = 0,
    resume: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Train as the schedule says.

    Args:
        evaluate_every: evaluate on `splits` at the start, after every so many updates, and at the
            end; 0 never.
        gap: record the gap of every applied gradient.
        folder: where checkpoints go, every `checkpoint_every` updates and at the end.
        resume: go on from the folder's checkpoint, if there is one.
        watch: called after every update.
    """
    one_of("engine", engine, ("auto", "exact"))
    count("evaluate_every", evaluate_every, least=0)
    count("checkpoint_every", checkpoint_every, least=0)
    validate(schedule)
    sharding = divide(task, rule, schedule.shards, shard_by)
    execution = Exact(schedule, task, rule, sharding, gap)
    checkpoint = None if folder is None else folder / CHECKPOINT
    if resume and checkpoint is not None and checkpoint.exists():
        execution.restore(*load_checkpoint(checkpoint))
    started = time.perf_counter()
    while True:
        updates, last = execution.updates, execution.position == schedule.groups
        if evaluate_every and (last or updates % evaluate_every == 0):
            _check_finite(execution)
            _evaluate(execution, splits, time.perf_counter() - started)
        if checkpoint is not None and (
            last or (checkpoint_every and updates and updates % checkpoint_every == 0)
        ):
            _check_finite(execution)  # the last good checkpoint must stay
            save_checkpoint(checkpoint, execution.tensors(), execution.facts())
        if last:
            return execution.run()
        while execution.updates == updates and execution.position < schedule.groups:
            execution.advance()
        if watch is not None:
            watch(Tick(execution.updates, schedule.updates, execution.history.loss[-1]))


def simulate(
    task: Task,
    rule: Rule,
    policy: Policy | None = None,
    cluster: Cluster | None = None,
    updates: int = 1000,
    seed: int = 0,
    shards: int = 1,
    engine: Engine = "auto",
    **options: object,
) -> Run:
    """Make the schedule of a policy on a cluster and execute it; `options` as in `execute`."""
    made = schedule(policy, cluster, updates, seed, shards)
    return execute(made, task, rule, engine, **options)  # type: ignore[arg-type]


def _evaluate(execution: Exact, splits: Sequence[str], wall_s: float) -> None:
    """Add a record for this update, unless a resumed run has it already."""
    schedule, records = execution.schedule, execution.history.records
    updates = execution.updates
    if records and records[-1]["update"] == updates:
        return
    done = execution.position
    recent = execution.history.loss[int(records[-1]["update"]) if records else 0 :]
    record: dict[str, float] = {
        "update": updates,
        "time_s": float(schedule.group_time_s[done - 1]) if done else 0.0,
        "wall_s": wall_s,
        "samples": execution.shards[0].samples,
    }
    if execution.task.epoch_size:
        record["epoch"] = record["samples"] / execution.task.epoch_size
    if recent:
        record["batch_loss"] = sum(recent) / len(recent)
    for split in splits:
        measured = execution.task.evaluate(execution.params, execution.buffers, split)
        record |= {f"{split}_{name}": value for name, value in measured.items()}
        if execution.average is not None:
            averaged = execution.task.evaluate(execution.average, execution.buffers, split)
            record |= {f"{split}_{name}_ema": value for name, value in averaged.items()}
    records.append(record)


def _check_finite(execution: Exact) -> None:
    params = execution.params
    bad = ~torch.isfinite(params)
    if bool(bad.any()):
        schedule, value = execution.schedule, float(params[bad][0])
        worker = int(schedule.worker[schedule.group(execution.position - 1)[0]])
        raise Diverged(execution.updates, worker, value, "a parameter")


def divide(
    task: Task, rule: Rule, shards: int, shard_by: Literal["slice", "tensor"] = "slice"
) -> Sharding:
    """How a task's parameters are divided over shards, as far as the rule allows it.

    A norm over a tensor or over all parameters needs them on one shard.
    """
    sharding = Sharding.divide(task.layout, shards, shard_by)
    per = rule.correction.per if isinstance(rule.correction, Gap) else "parameter"
    require(
        per != "global" or sharding.shards == 1,
        f'per="global" takes the norm of all parameters, but {sharding.shards} shards hold a part '
        'each: use shards = 1, or per="layer" with shard_by = "tensor"',
    )
    require(
        per != "layer" or sharding.whole_tensors,
        'per="layer" takes the norm of each tensor, but shards cut through tensors: '
        'use shard_by = "tensor"',
    )
    return sharding
