"""Executing a schedule: pick an engine, evaluate on the way, save and go on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict, Unpack

from tardigrad.clusters import Cluster
from tardigrad.core.checks import one_of, require
from tardigrad.core.layout import Sharding
from tardigrad.core.renamed_arguments import Grouped, grouped_arguments
from tardigrad.core.trees import not_finite
from tardigrad.core.used_code import used_code
from tardigrad.engine.choose import ENGINES, Engine, choose
from tardigrad.engine.execution import Execution
from tardigrad.engine.job import Job
from tardigrad.engine.lockstep import Lockstep
from tardigrad.engine.options import Checkpoints, Evaluation, Limits
from tardigrad.engine.resume import CHECKPOINT, restore, save, saved_chunk
from tardigrad.engine.run import Diverged, Run, Say
from tardigrad.engine.scope import check_scope
from tardigrad.links import Link
from tardigrad.policies import Async, Policy
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule, check_control, schedule, traffic, validate
from tardigrad.tasks import ModuleTask, Task
from tardigrad.tasks.checks import check_parameters

ShardBy = Literal["slice", "tensor"]

OLD_NAMES = grouped_arguments(
    evaluation=Grouped(
        Evaluation, {"evaluate_every": "every", "splits": "splits", "measures": "measures"}
    ),
    checkpoints=Grouped(
        Checkpoints, {"folder": "folder", "checkpoint_every": "every", "resume": "resume"}
    ),
    limits=Grouped(Limits, {"chunk": "chunk", "memory_gib": "memory_gib"}),
)


class Tick(NamedTuple):
    """Where an execution stands, for whoever watches."""

    updates: int
    total: int
    loss: float


Watch = Callable[[Tick], None]


class Options(TypedDict, total=False):
    """What `execute` takes by name, where it is handed on."""

    shard_by: ShardBy
    evaluation: Evaluation | int
    checkpoints: Checkpoints | None
    limits: Limits | None
    watch: Watch | None
    say: Say | None


@OLD_NAMES
def execute(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    engine: Engine = "auto",
    *,
    shard_by: ShardBy = "slice",
    evaluation: Evaluation | int = 0,
    checkpoints: Checkpoints | None = None,
    limits: Limits | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
) -> Run:
    """Train as the schedule says.

    Args:
        evaluation: what is measured on the way; a number is how many updates lie between two
            evaluations.
        checkpoints: where the run is saved, and whether it goes on from there; None: nowhere.
        limits: what it may take; None: what the machine has left.
        watch: called after every update, by the fast engine after every batch of them.
        say: told, in a line each, which engine was picked and why, and whether the code has changed
            since the checkpoint to go on from (a warning, where nobody is to be told).
    """
    evaluation = Evaluation.of(evaluation)
    checkpoints, limits = checkpoints or Checkpoints(), limits or Limits()
    if checkpoints.resume and checkpoints.folder is not None and limits.chunk is None:
        limits = replace(limits, chunk=saved_chunk(checkpoints.folder))
    execution = prepare(schedule, task, rule, engine, shard_by, evaluation.measures, limits, say)
    return drive(execution, evaluation, checkpoints, watch, say)


def prepare(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    engine: Engine = "auto",
    shard_by: ShardBy = "slice",
    measures: Sequence[str] = (),
    limits: Limits | None = None,
    say: Say | None = None,
) -> Execution:
    """What will execute the schedule; the arguments are those of `execute`, `measures` those of its
    evaluation."""
    one_of("engine", engine, ENGINES)
    validate(schedule)
    check_workers(task, schedule.workers)
    sharding = divide(task, rule, schedule.shards, shard_by)
    job = Job(schedule, task, rule, sharding, measures)
    return choose(engine, job, say or (lambda line: None), limits or Limits())


def drive(
    execution: Execution,
    evaluation: Evaluation | int = 0,
    checkpoints: Checkpoints | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
) -> Run:
    """Execute to the end; the arguments are those of `execute`."""
    evaluation, checkpoints = Evaluation.of(evaluation), checkpoints or Checkpoints()
    check_splits(execution.task, evaluation)
    checkpoint, code, spent_s = None, dict[str, str](), 0.0
    if checkpoints.folder is not None:
        checkpoint = Path(checkpoints.folder) / CHECKPOINT
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        code = used_code(execution.task, execution.rule, *execution.decided_by)
    if checkpoints.resume and checkpoint is not None and checkpoint.exists():
        spent_s = restore(execution, checkpoint, code, say)
    evaluates, saves = evaluation.every, checkpoints.every
    stops = [every for every in (evaluates, saves) if every]
    started = time.perf_counter() - spent_s
    while True:
        updates, last = execution.updates, execution.finished
        if evaluates and (last or updates % evaluates == 0):
            record_evaluation(execution, evaluation.splits, time.perf_counter() - started)
        if checkpoint is not None and (last or (saves and updates and updates % saves == 0)):
            save(execution, checkpoint, code, time.perf_counter() - started)
        if last:
            return execution.run()
        execution.advance_to(min([execution.total, *(updates - updates % n + n for n in stops)]))
        check_finite(execution)  # before it is saved: the last good checkpoint must stay
        if watch is not None:
            watch(Tick(execution.updates, execution.total, execution.history.loss[-1]))


@OLD_NAMES
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
    **options: Unpack[Options],
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

    def together(shard_by: ShardBy, measures: Sequence[str]) -> Execution:
        return prepare_together(
            task,
            rule,
            policy or Async(),
            cluster,
            updates,
            seed,
            shards,
            engine,
            link,
            shard_by,
            measures,
        )

    return _execute_together(together, **options)


def _execute_together(
    prepared: Callable[[ShardBy, Sequence[str]], Execution],
    *,
    shard_by: ShardBy = "slice",
    evaluation: Evaluation | int = 0,
    checkpoints: Checkpoints | None = None,
    limits: Limits | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
) -> Run:
    """As `execute`, but for the limits, which are about the choice of an engine."""
    evaluation = Evaluation.of(evaluation)
    return drive(prepared(shard_by, evaluation.measures), evaluation, checkpoints, watch, say)


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
    shard_by: ShardBy = "slice",
    measures: Sequence[str] = (),
) -> Execution:
    """What will make the schedule and execute it together, because the link reads tensors."""
    require(
        engine in ("auto", "exact"),
        f"{type(link).__name__} decides by tensors, so the schedule is executed while it is being "
        f'made, by engine = "exact"; got engine = {engine!r}',
    )
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


def check_splits(task: Task, evaluation: Evaluation) -> None:
    """Refuse evaluations that would measure nothing.

    A task that has no splits at all, a gradient function without `evaluate`, is no mistake: its
    records hold the batch loss, time and traffic.
    """
    for split in evaluation.splits if evaluation.every else ():
        require(
            not task.splits or split in task.splits,
            f"the run is to evaluate on {split!r}, but the task has only "
            f"{' and '.join(map(repr, task.splits))}: use splits={list(task.splits)}, splits=[] "
            "for the batch loss alone, or 0 updates between evaluations for none",
        )


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


def divide(task: Task, rule: Rule, shards: int, shard_by: ShardBy = "slice") -> Sharding:
    """How a task's parameters are divided over shards, as far as they and the rule allow it."""
    check_parameters(task.start())
    rule.check_names(task.layout)
    sharding = Sharding.divide(task.layout, shards, shard_by)
    check_scope(rule, sharding, task.start().dtype)
    return sharding
