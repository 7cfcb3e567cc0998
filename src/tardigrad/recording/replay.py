"""Replay: execute the schedule that a run recorded, and say whether the bits are the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tardigrad.core.checks import count, require
from tardigrad.engine import Run
from tardigrad.engine.checkpoint import save_checkpoint
from tardigrad.engine.exact import Exact
from tardigrad.engine.execute import divide
from tardigrad.engine.job import Job
from tardigrad.recording.facts import check_facts, facts_of
from tardigrad.recording.replica import tensor_digest
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Task
from tardigrad.tasks.hosted import hosted


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
) -> Replayed:
    """Execute a recorded schedule, comparing θ with every digest in the record.

    It stops at the first difference, or at update `until`, or at the end; `checkpoint` is then
    written, with everything needed to look at that moment. Refused where the record's facts
    differ from what is here, because then other bits would prove nothing (`force`: not refused).
    """
    facts = record["facts"]
    if not force:
        check_facts(
            facts,
            facts_of(task, rule, facts["threads"]),
            "Replay it where these are the same, or with --force (force=True) to see how far it "
            "agrees",
        )
    if until is not None:
        count("until", until, least=0)
        require(
            until <= schedule.updates,
            f"until = {until}, but the run has {schedule.updates} updates",
        )
    recorded = {(shard, version): value for shard, version, value in record["digests"]}
    sharding = divide(task, rule, schedule.shards, record["shard_by"])
    execution = Exact(Job(schedule, hosted(task), rule, sharding))
    difference, compared = None, 0
    threads = torch.get_num_threads()
    torch.set_num_threads(facts["threads"])
    try:
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
    finally:
        torch.set_num_threads(threads)
    if checkpoint is not None:
        save_checkpoint(Path(checkpoint), execution.tensors(), execution.facts())
    run = replace(execution.run(), task=task)
    return Replayed(run, execution.updates, compared, difference)
