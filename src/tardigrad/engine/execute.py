"""Executing a schedule: by which engine, and with what asked of it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypedDict, Unpack

import torch

from tardigrad.clusters import Clockless, Cluster
from tardigrad.core.checks import count, one_of, require
from tardigrad.core.layout import Layout, Sharding
from tardigrad.core.renamed_arguments import Grouped, grouped_arguments
from tardigrad.engine.choose import ENGINES, Engine, choose
from tardigrad.engine.drive import check_splits, drive
from tardigrad.engine.execution import Execution
from tardigrad.engine.given import check_learned, check_parts
from tardigrad.engine.job import Job
from tardigrad.engine.lockstep import Lockstep, check_deviation
from tardigrad.engine.memory import check_budget, check_chunk
from tardigrad.engine.observer import Observer, Watch
from tardigrad.engine.options import Checkpoints, Evaluation, Limits
from tardigrad.engine.resume import saved_chunk
from tardigrad.engine.run import Run, Say
from tardigrad.engine.scope import check_scope
from tardigrad.engine.stop import Stop
from tardigrad.links import Codec, Identity, Link
from tardigrad.policies import Async, Policy
from tardigrad.policies.wrapping import layers
from tardigrad.rules import Rule
from tardigrad.rules.rates import Progress
from tardigrad.scheduling import Schedule, check_control, schedule, validate
from tardigrad.tasks import ModuleTask, Task
from tardigrad.tasks.checks import check_parameters
from tardigrad.work import AnyWork, OneGradient, Work

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


class Options(TypedDict, total=False):
    """What `execute` takes by name, where it is handed on."""

    shard_by: ShardBy
    work: AnyWork | None
    evaluation: Evaluation | int
    checkpoints: Checkpoints | None
    limits: Limits | None
    stop: Stop | None
    observers: Sequence[Observer]
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
    work: AnyWork | None = None,
    codec: Codec | None = None,
    evaluation: Evaluation | int = 0,
    checkpoints: Checkpoints | None = None,
    limits: Limits | None = None,
    stop: Stop | None = None,
    observers: Sequence[Observer] = (),
    watch: Watch | None = None,
    say: Say | None = None,
) -> Run:
    """Train as the schedule says.

    Args:
        work: what workers do between a pull and a push; None: one gradient.
        codec: in which form gradients are pushed, of the link that the schedule was made with (what
            its gate decided is part of the schedule); None: as they are.
        evaluation: what is measured on the way; a number is how many updates lie between two
            evaluations.
        checkpoints: where the run is saved, and whether it goes on from there; None: nowhere.
        limits: what it may take; None: what the machine has left.
        stop: what ends the run before all updates are made.
        observers: told how the run goes.
        watch: called after every update, by the fast engine after every batch of them.
        say: told, in a line each, which engine was picked and why, and whether the code has changed
            since the checkpoint to go on from (a warning, where nobody is to be told).
    """
    check_learned(task, rule)
    check_parts(stop=stop, checkpoints=checkpoints, limits=limits)
    evaluation = Evaluation.of(evaluation)
    checkpoints, limits = checkpoints or Checkpoints(), limits or Limits()
    if checkpoints.resume and checkpoints.folder is not None and limits.chunk is None:
        limits = replace(limits, chunk=saved_chunk(checkpoints.folder))
    execution = prepare(
        schedule, task, rule, engine, shard_by, evaluation.measures, limits, say, work, codec
    )
    return drive(execution, evaluation, checkpoints, watch, say, stop, observers)


def prepare(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    engine: Engine = "auto",
    shard_by: ShardBy = "slice",
    measures: Sequence[str] = (),
    limits: Limits | None = None,
    say: Say | None = None,
    work: AnyWork | None = None,
    codec: Codec | None = None,
) -> Execution:
    """What will execute the schedule; the arguments are those of `execute`, `measures` those of its
    evaluation."""
    one_of("engine", engine, ENGINES)
    validate(schedule)
    check_workers(task, schedule.workers)
    check_weights(rule, schedule)
    sharding = divide(task, rule, schedule.shards, shard_by)
    work, codec = work_of(work, rule), codec_of(codec)
    check_work(work, task, None, measures, bool(schedule.merged))
    most = int(schedule.steps.max(initial=0))
    require(
        most <= work.batches,
        f"the schedule has rows of {most} steps, and {type(work).__name__} takes {work.batches}: "
        f"give the work that it was made for, such as work=tg.LocalSteps({most}, …)",
    )
    check_codec(codec, measures)
    job = Job(schedule, task, rule, sharding, measures, work, codec)
    return choose(engine, job, say or (lambda line: None), limits or Limits())


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
    check_learned(task, rule)
    check_parts(policy=policy, cluster=cluster, link=link, **options)
    if shards == "tensor":
        shards, options["shard_by"] = len(task.layout.names), "tensor"
    check_weights(rule, policy or Async())
    if link is None or not link.reads_deviation:
        work = work_of(options.get("work"), rule)
        if link is not None and link.averages:  # though it may come to hold none back
            check_work(work, task, link)
        made = schedule(policy, cluster, updates, seed, shards, link, batches=work.batches)
        codec = None if link is None else link.codec
        return execute(made, task, rule, engine, codec=codec, **options)

    def together(shard_by: ShardBy, measures: Sequence[str], work: AnyWork | None) -> Execution:
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
            work,
        )

    return _execute_together(together, **options)


def _execute_together(
    prepared: Callable[[ShardBy, Sequence[str], AnyWork | None], Execution],
    *,
    shard_by: ShardBy = "slice",
    work: AnyWork | None = None,
    evaluation: Evaluation | int = 0,
    checkpoints: Checkpoints | None = None,
    limits: Limits | None = None,
    stop: Stop | None = None,
    observers: Sequence[Observer] = (),
    watch: Watch | None = None,
    say: Say | None = None,
) -> Run:
    """As `execute`, but for the limits, which are about the choice of an engine."""
    evaluation = Evaluation.of(evaluation)
    execution = prepared(shard_by, evaluation.measures, work)
    return drive(execution, evaluation, checkpoints, watch, say, stop, observers)


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
    work: AnyWork | None = None,
) -> Execution:
    """What will make the schedule and execute it together, because the link reads tensors."""
    require(
        engine in ("auto", "exact"),
        f"{type(link).__name__} decides by tensors, so the schedule is executed while it is being "
        f'made, by engine = "exact"; got engine = {engine!r}',
    )
    work = work_of(work, rule)
    about = check_control(policy, cluster, updates, seed, shards, link, work.batches)
    assert cluster is not None
    check_workers(task, cluster.workers)
    check_weights(rule, policy)
    check_work(work, task, link, measures)
    check_codec(codec_of(link.codec), measures)
    _check_together(task, policy, link, work)
    sharding = divide(task, rule, shards, shard_by)
    return Lockstep(
        task, rule, sharding, policy, cluster, updates, seed, link, about, measures, work
    )


def check_combination(
    task: Task,
    rule: Rule,
    policy: Policy,
    link: Link,
    work: AnyWork,
    shards: int,
    shard_by: ShardBy = "slice",
    measures: Sequence[str] = (),
    simulated: bool = True,
) -> None:
    """Refuse what does not go together, before a schedule is made, which may take long."""
    check_weights(rule, policy)
    divide(task, rule, shards, shard_by)
    check_deviation(rule, link, rule.start(torch.zeros(1), Layout.flat(1)))
    check_work(work, task, link, measures)
    check_codec(codec_of(link.codec), measures)
    if link.reads_deviation and simulated:
        _check_together(task, policy, link, work)


def check_setting(
    task: Task,
    rule: Rule,
    cluster: Cluster,
    updates: int,
    evaluation: Evaluation,
    limits: Limits,
    stop: Stop | None,
) -> None:
    """Refuse, as early, what the task or the machine cannot give."""
    check_splits(task, evaluation)
    check_workers(task, cluster.workers)
    rule.scalars(Progress(epoch_size=task.epoch_size))
    check_chunk(limits.chunk, task, check_budget(limits.memory_gib, task.start().device))
    if stop is not None:
        clock = "events" if isinstance(cluster, Clockless) else "virtual"
        stop.check(task, evaluation, updates, clock)


def _check_together(task: Task, policy: Policy, link: Link, work: AnyWork) -> None:
    """What a schedule that is made while it is executed cannot have."""
    require(
        policy.pace(work.batches) is None,
        f"{type(policy).__name__} decides on the steps of each row, and {type(link).__name__} by "
        "tensors while the schedule is being made: use one of them, with another link or policy",
    )
    require(
        not work.keeps_state(task),
        f"{type(work).__name__} keeps a state from row to row, and {type(link).__name__} decides "
        "by tensors while the schedule is being made: use keep_state=False, or another link",
    )


def check_workers(task: Task, workers: int) -> None:
    """Refuse a task whose data is divided among fewer workers, before the last of them starts."""
    if isinstance(task, ModuleTask):
        task.indices_of([workers - 1], [0], [0])


def work_of(given: AnyWork | None, rule: Rule) -> AnyWork:
    """What was asked for, or one gradient. It clips as the rule says, where that still does."""
    require(
        given is None or isinstance(given, Work),
        f"work must be a tg.Work such as tg.LocalSteps(16, inner=torch.optim.AdamW), got {given!r}",
    )
    require(
        not hasattr(rule, "prepare"),
        f"{type(rule).__name__}.prepare would not be called: what workers do to a gradient is the "
        "work's, so write a tg.Work of your own, or tg.OneGradient(clip_norm=1.0)",
    )
    if given is not None:
        count(f"{type(given).__name__}.batches", given.batches)
    work = given or OneGradient()
    if rule.clip_norm is None or work == OneGradient(rule.clip_norm):
        return work
    require(
        work == OneGradient(),
        f"the rule says clip_norm={rule.clip_norm}, and the work is {work!r}: what workers clip is "
        "the work's, so leave it out of the rule, and say clip_norm there",
    )
    return OneGradient(rule.clip_norm)


def codec_of(given: Codec | None) -> Codec:
    """What was asked for, or numbers as they are."""
    require(
        given is None or isinstance(given, Codec),
        f"codec must be a tg.Codec such as tg.TopK(0.01), got {given!r}",
    )
    return given or Identity()


def check_codec(codec: Codec, measures: Sequence[str]) -> None:
    require(
        "b_staleness" not in measures or isinstance(codec, Identity),
        'measures = "b_staleness" compares gradients as they were computed, and '
        f"{type(codec).__name__} changes what is applied: leave it out, or use no codec",
    )


def check_work(
    work: AnyWork,
    task: Task,
    link: Link | None = None,
    measures: Sequence[str] = (),
    averaged: bool = False,
) -> None:
    """Refuse what goes with one gradient alone. averaged: whether a schedule has pushes that its
    link, which is not known here, has averaged."""
    instead = link.unaveraged if link is not None else Link.unaveraged
    work.check_names(task.layout)
    name = type(work).__name__
    require(
        work.batches == 1 or not (averaged if link is None else link.averages),
        f"{name} pushes what {work.batches} batches have made, and a link that averages it into a "
        f"later push would add views that are far apart: use {instead}",
    )
    require(
        "b_staleness" not in measures or not work.keeps_state(task),
        f'measures = "b_staleness" computes a gradient once more, which {name} with a state of its '
        "own cannot: leave it out, or use keep_state=False",
    )


def check_weights(rule: Rule, given_by: Policy | Schedule) -> None:
    """Refuse a rule that cannot let some gradients of a group count for more than others, where a
    policy may want that, or a schedule does."""
    if isinstance(given_by, Schedule):
        gives, who = given_by.weighted, given_by.about.get("policy", {}).get("name", "the schedule")
    else:
        gives, (*_, innermost) = given_by.gives_weights, layers(given_by)
        who = type(innermost).__name__
    require(
        rule.takes_weights or not gives,
        f"{who} lets some gradients of an update count for more than others, and "
        f"{rule.optimizer.called} keeps numbers of each worker's own, which take whole gradients: "
        "use another rule, such as sgd or adam, or a policy without weights, such as Sync",
    )


def divide(task: Task, rule: Rule, shards: int, shard_by: ShardBy = "slice") -> Sharding:
    """How a task's parameters are divided over shards, as far as they and the rule allow it."""
    check_parameters(task.start())
    rule.check_names(task.layout)
    sharding = Sharding.divide(task.layout, shards, shard_by)
    check_scope(rule, sharding, task.start().dtype)
    return sharding
