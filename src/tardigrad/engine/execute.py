"""Executing a schedule: pick an engine, evaluate on the way, save and go on."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tardigrad.clusters import Cluster
from tardigrad.core.checks import count, one_of, require
from tardigrad.core.layout import Sharding
from tardigrad.core.trees import not_finite
from tardigrad.core.used_code import used_code
from tardigrad.engine.choose import ENGINES, Engine, Execution, choose
from tardigrad.engine.lockstep import Lockstep
from tardigrad.engine.resume import CHECKPOINT, restore, save, saved_chunk
from tardigrad.engine.run import Diverged, Run, Say
from tardigrad.engine.scope import check_scope
from tardigrad.links import Link
from tardigrad.policies import Async, Policy
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule, check_control, schedule, traffic, validate
from tardigrad.tasks import SPLITS, ModuleTask, Task
from tardigrad.tasks.checks import check_parameters

MEASURES = ("gap", "b_staleness")


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
    measures: Sequence[str] = (),
    folder: str | Path | None = None,
    checkpoint_every: int = 0,
    resume: bool = False,
    watch: Watch | None = None,
    chunk: int | None = None,
    memory_gib: float | None = None,
    say: Say | None = None,
) -> Run:
    """Train as the schedule says.

    Args:
        evaluate_every: evaluate on `splits` at the start, after every so many updates, and at the
            end; 0 never. Without splits it records the mean batch loss alone.
        measures: what to record of every gradient applied at shard 0: "gap" (the distance of its
            view from θ) and "b_staleness" (how much the gradient itself has changed since, at the
            price of computing it twice).
        folder: where checkpoints go, every `checkpoint_every` updates and at the end; made where
            there is none.
        resume: go on from the folder's checkpoint, if there is one.
        watch: called after every update, by the fast engine after every batch of them.
        chunk: gradients that the fast engine computes at a time; None is what the checkpoint to go
            on from was made with, or else suits the machine.
        memory_gib: what the run may take; None is what the machine has left. Refused before it
            starts if it would take more.
        say: told, in a line each, which engine was picked and why, and whether the code has changed
            since the checkpoint to go on from (a warning, where nobody is to be told).
    """
    if resume and chunk is None and folder is not None:
        chunk = saved_chunk(folder)
    execution = prepare(schedule, task, rule, engine, shard_by, measures, chunk, memory_gib, say)
    return drive(execution, evaluate_every, splits, folder, checkpoint_every, resume, watch, say)


def prepare(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    engine: Engine = "auto",
    shard_by: Literal["slice", "tensor"] = "slice",
    measures: Sequence[str] = (),
    chunk: int | None = None,
    memory_gib: float | None = None,
    say: Say | None = None,
) -> Execution:
    """What will execute the schedule; the arguments are those of `execute`."""
    one_of("engine", engine, ENGINES)
    check_measures(measures)
    validate(schedule)
    check_workers(task, schedule.workers)
    sharding = divide(task, rule, schedule.shards, shard_by)
    say = say or (lambda line: None)
    return choose(engine, schedule, task, rule, sharding, say, measures, chunk, memory_gib)


def drive(
    execution: Execution,
    evaluate_every: int = 0,
    splits: Sequence[str] = ("validation",),
    folder: str | Path | None = None,
    checkpoint_every: int = 0,
    resume: bool = False,
    watch: Watch | None = None,
    say: Say | None = None,
) -> Run:
    """Execute to the end; the arguments are those of `execute`."""
    count("evaluate_every", evaluate_every, least=0)
    count("checkpoint_every", checkpoint_every, least=0)
    check_splits(execution.task, evaluate_every, splits)
    checkpoint, code, spent_s = None, dict[str, str](), 0.0
    if folder is not None:
        checkpoint = Path(folder) / CHECKPOINT
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        code = used_code(execution.task, execution.rule)
    if resume and checkpoint is not None and checkpoint.exists():
        spent_s = restore(execution, checkpoint, code, say)
    stops = [every for every in (evaluate_every, checkpoint_every) if every]
    started = time.perf_counter() - spent_s
    while True:
        updates, last = execution.updates, execution.finished
        if evaluate_every and (last or updates % evaluate_every == 0):
            record_evaluation(execution, splits, time.perf_counter() - started)
        if checkpoint is not None and (
            last or (checkpoint_every and updates and updates % checkpoint_every == 0)
        ):
            save(execution, checkpoint, code, time.perf_counter() - started)
        if last:
            return execution.run()
        execution.advance_to(min([execution.total, *(updates - updates % n + n for n in stops)]))
        check_finite(execution)  # before it is saved: the last good checkpoint must stay
        if watch is not None:
            watch(Tick(execution.updates, execution.total, execution.history.loss[-1]))


def simulate(
    task: Task,
    rule: Rule,
    policy: Policy | None = None,
    cluster: Cluster | None = None,
    updates: int = 1000,
    seed: int = 0,
    shards: int | Literal["tensor"] = 1,
    engine: Engine = "auto",
    link: Link | None = None,
    **options: Any,
) -> Run:
    """Make the schedule of a policy on a cluster and execute it; `options` as in `execute`.

    `shards="tensor"` makes each tensor a shard of its own, with its own version: what a link then
    decides, it decides per tensor.
    """
    if shards == "tensor":
        shards, options["shard_by"] = len(task.layout.names), "tensor"
    if link is None or not link.reads_deviation:
        made = schedule(policy, cluster, updates, seed, shards, link)
        return execute(made, task, rule, engine, **options)
    building = {name: options.pop(name) for name in ("shard_by", "measures") if name in options}
    for name in ("chunk", "memory_gib"):  # they are about the choice of an engine
        options.pop(name, None)
    execution = prepare_together(
        task, rule, policy or Async(), cluster, updates, seed, shards, engine, link, **building
    )
    return drive(execution, **options)


def prepare_together(
    task: Task,
    rule: Rule,
    policy: Policy,
    cluster: Cluster | None,
    updates: int,
    seed: int,
    shards: int,
    engine: Engine,
    link: Link,
    shard_by: Literal["slice", "tensor"] = "slice",
    measures: Sequence[str] = (),
) -> Execution:
    """What will make the schedule and execute it together, because the link reads tensors."""
    require(
        engine in ("auto", "exact"),
        f"{type(link).__name__} decides by tensors, so the schedule is executed while it is being "
        f'made, by engine = "exact"; got engine = {engine!r}',
    )
    check_measures(measures)
    about = check_control(policy, cluster, updates, seed, shards, link)
    assert cluster is not None
    check_workers(task, cluster.workers)
    sharding = divide(task, rule, shards, shard_by)
    return Lockstep(task, rule, sharding, policy, cluster, updates, seed, link, about, measures)


def record_evaluation(execution: Execution, splits: Sequence[str], wall_s: float) -> None:
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
        "samples": execution.samples,
    }
    if execution.task.epoch_size:
        record["epoch"] = record["samples"] / execution.task.epoch_size
    if recent:
        record["batch_loss"] = sum(recent) / len(recent)
    record |= traffic(schedule, execution.shard_bytes, done).record()
    for split in splits:
        measured = execution.task.evaluate(execution.params, execution.buffers, split)
        record |= {f"{split}_{name}": value for name, value in measured.items()}
        if execution.average is not None:
            averaged = execution.task.evaluate(execution.average, execution.buffers, split)
            record |= {f"{split}_{name}_ema": value for name, value in averaged.items()}
    records.append(record)


def check_splits(task: Task, evaluate_every: int, splits: Sequence[str]) -> None:
    """Refuse evaluations that would measure nothing.

    A task that has no splits at all, a gradient function without `evaluate`, is no mistake: its
    records hold the batch loss, time and traffic.
    """
    require(not isinstance(splits, str), f'splits is a list of names, such as ["{splits}"]')
    for split in splits if evaluate_every else ():
        one_of("splits", split, SPLITS)
        require(
            not task.splits or split in task.splits,
            f"evaluate_every={evaluate_every} is to evaluate on {split!r}, but the task has only "
            f"{' and '.join(map(repr, task.splits))}: use splits={list(task.splits)}, splits=[] "
            "for the batch loss alone, or evaluate_every=0",
        )


def check_measures(measures: Sequence[str]) -> None:
    require(not isinstance(measures, str), f'measures is a list of names, such as ["{measures}"]')
    for name in measures:
        one_of("measures", name, MEASURES)


def check_workers(task: Task, workers: int) -> None:
    """Refuse a task whose data is divided among fewer workers, before the last of them starts."""
    if isinstance(task, ModuleTask):
        task.indices_of([workers - 1], [0], [0])


def check_finite(execution: Execution) -> None:
    """What no loss and no gradient told: those may be finite, or the task gives no loss."""
    wrong = not_finite(execution.params)
    if wrong is not None:
        schedule = execution.schedule
        worker = int(schedule.worker[schedule.group(execution.position - 1)[0]])
        raise Diverged(execution.updates, worker, wrong, "a parameter")


def divide(
    task: Task, rule: Rule, shards: int, shard_by: Literal["slice", "tensor"] = "slice"
) -> Sharding:
    """How a task's parameters are divided over shards, as far as they and the rule allow it."""
    check_parameters(task.start())
    sharding = Sharding.divide(task.layout, shards, shard_by)
    check_scope(rule, sharding, task.start().dtype)
    return sharding
