"""Replay: execute the schedule that a run recorded, and say whether the bits are the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tardigrad.core.checks import count, require
from tardigrad.core.computer import computer
from tardigrad.engine import Limits, Run
from tardigrad.engine.checkpoint import save_checkpoint
from tardigrad.engine.exact import Exact
from tardigrad.engine.execute import divide, prepare, work_of
from tardigrad.engine.job import Job
from tardigrad.links import Codec, Identity
from tardigrad.recording.facts import HARDWARE, check_computers, check_facts, facts_of
from tardigrad.recording.replica import tensor_digest
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Task
from tardigrad.tasks.hosted import hosted
from tardigrad.tasks.precision import computed_on
from tardigrad.work import AnyWork

INSTEAD = (
    "Replay it where these are the same, or with --force (force=True) to see how far it agrees"
)


class Difference(NamedTuple):
    """The first version whose digest differs from the recorded one."""

    shard: int
    version: int
    recorded: str
    replayed: str


class Replayed(NamedTuple):
    run: Run
    updates: int
    compared: int
    """How many digests were compared."""
    difference: Difference | None


def replay_recorded(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    record: dict[str, Any],
    until: int | None = None,
    checkpoint: str | Path | None = None,
    force: bool = False,
    work: AnyWork | None = None,
    codec: Codec | None = None,
) -> Replayed:
    """Execute a recorded schedule, comparing θ with every digest in the record.

    It stops at the first difference, or at update `until`, or at the end; `checkpoint` is then
    written, with everything needed to look at that moment. Refused where the record's facts
    differ from what is here, because then other bits would prove nothing (`force`: not refused).
    """
    facts, work, codec = record["facts"], work_of(work, rule), codec or Identity()
    if not force:
        computers = record.get("computers")  # older records do not say on which it was computed
        but = HARDWARE if computers else ()
        check_facts(facts, facts_of(task, rule, facts["threads"], work, codec), INSTEAD, but)
        check_computers(computers or [], computer(), INSTEAD)
    _check_until(until, schedule)
    recorded = {(shard, version): value for shard, version, value in record["digests"]}
    sharding = divide(task, rule, schedule.shards, record["shard_by"])
    execution = Exact(Job(schedule, hosted(task), rule, sharding, work=work, codec=codec))
    difference, compared = None, 0
    with _threads(facts["threads"]):
        while execution.position < schedule.groups and difference is None:
            if until is not None and execution.updates >= until:
                break
            at = int(schedule.group_shard[execution.position])
            execution.advance()
            shard = execution.shards[at]
            expected = recorded.get((at, shard.version))
            if expected is not None:
                found = tensor_digest(shard.theta)
                compared += 1
                if found != expected:
                    difference = Difference(at, shard.version, expected, found)
    if checkpoint is not None:
        save_checkpoint(Path(checkpoint), execution.tensors(), execution.facts())
    run = replace(execution.run(), task=task)
    return Replayed(run, execution.updates, compared, difference)


def replay_run(
    run: Run,
    until: int | None = None,
    checkpoint: str | Path | None = None,
    force: bool = False,
) -> Replayed:
    """Execute a run's schedule by what computed it, and compare θ at the end, shard by shard.

    `until`, `checkpoint` and `force` as in `replay_recorded`; before the end there is nothing to
    compare.
    """
    source, task, rule, schedule = run.provenance, run.task, run.rule, run.schedule
    require(
        source is not None,
        "this run does not tell what computed it (tardigrad 0.1 did not note it): execute its "
        "schedule, tg.execute(run.schedule, task, rule)",
    )
    require(
        task is not None and rule is not None,
        "this run does not know its task and rule: load it with them, "
        "tg.Run.load(folder, task=task, rule=rule)",
    )
    assert source is not None
    assert task is not None
    assert rule is not None
    require(
        source.engine != "fast" or not source.stopped,
        "this run was ended before its schedule by the fast engine, whose last bits depend on the "
        'updates that would have followed: replay one that was made with engine="exact", or '
        "that made all its updates",
    )
    if not force:
        # On Ray, actors tell of their processors alone: GPUs are like the driver's.
        here = computer() if source.engine == "ray" else computed_on(task.start().device)
        check_computers(source.computers, here, INSTEAD)
    _check_until(until, schedule)
    goal = schedule.updates if until is None else until
    with _threads(source.threads):
        engine, computed = source.engine, task
        if engine == "ray":
            engine, computed = "exact", hosted(task)
        limits = Limits(chunk=source.chunk)
        execution = prepare(
            schedule,
            computed,
            rule,
            engine,
            source.shard_by,
            limits=limits,
            work=run.work,
            codec=run.codec,
        )
        while execution.updates < goal and not execution.finished:
            execution.advance_to(goal)
        if until is None:
            while not execution.finished:  # shards that went on after the last common update
                execution.advance_to(goal)
    if checkpoint is not None:
        save_checkpoint(Path(checkpoint), execution.tensors(), execution.facts())
    again, difference, compared = replace(execution.run(), task=task), None, 0
    for shard in range(schedule.shards) if until is None else ():
        mine = execution.sharding.slice(shard)
        before, now = (tensor_digest(one.params[mine]) for one in (run, again))
        compared += 1
        if before != now and difference is None:
            version = int((schedule.group_shard == shard).sum())
            difference = Difference(shard, version, before, now)
    return Replayed(again, execution.updates, compared, difference)


def _check_until(until: int | None, schedule: Schedule) -> None:
    if until is not None:
        count("until", until, least=0)
        require(
            until <= schedule.updates,
            f"until = {until}, but the run has {schedule.updates} updates",
        )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Those of torch, while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
