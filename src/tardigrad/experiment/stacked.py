"""Cells as one run on a GPU: those that share a schedule and a model."""

import json
import time
from collections.abc import Iterator, Sequence

from tardigrad.engine import Diverged
from tardigrad.engine.choose import WORTH_COMPILING
from tardigrad.engine.job import Job
from tardigrad.engine.memory import check_budget
from tardigrad.engine.result_files import summarise
from tardigrad.engine.run import Say
from tardigrad.engine.unsuited import Unsuited
from tardigrad.experiment.cells import (
    Experiment,
    Outcome,
    RunCell,
    diverged_outcome,
    ended_outcome,
    meets,
)
from tardigrad.experiment.spec import Spec
from tardigrad.links import Identity
from tardigrad.scheduling import Schedule
from tardigrad.work import OneGradient


def may_stack(runs: Experiment) -> bool:
    """Whether it is a spec on a GPU, left to the fast engine, and made to its end: runs of a stack
    go on together. Nobody looks on at one of them alone."""
    if not isinstance(runs, Spec) or runs.stop or runs.log or runs.engine == "exact":
        return False
    return str(runs.task.get("device", "cpu")).startswith("cuda")


def alike(runs: Experiment) -> str:
    """What cells must agree in to be stacked, beside their schedule: all but the rule and the
    task's seed."""
    if not isinstance(runs, Spec):
        return ""
    spec, data = runs, runs.data()
    task = {name: value for name, value in spec.task.items() if name != "seed"}
    rest = {name: value for name, value in data.items() if name not in ("rule", "task")}
    return json.dumps([task, rest], sort_keys=True)


def stacks(
    specs: Sequence[Spec], schedule: Schedule, say: Say
) -> Iterator[tuple[Sequence[Spec], list[Job]]]:
    """The specs, cut into stacks of as many as the GPU's memory holds.

    Raises Unsuited, before anything runs, where they must run one after another.
    """
    # The GPU's own code: imported where there is one to run on.
    from tardigrad.engine.fast.build_stack import check_stackable, stacked_bytes

    spec = specs[0]
    if spec.engine == "auto" and len(schedule.group_rows) < WORTH_COMPILING:
        raise Unsuited(f"{len(schedule.group_rows):,} gradients are done sooner than compiling")
    if spec.shards > 1 or spec.measures:
        raise Unsuited("stacks have one shard and measure nothing on the way")
    work = spec.make_work()
    if type(work) is not OneGradient:
        raise Unsuited("stacked workers compute one gradient a row")
    if not isinstance(spec.make_link().codec, Identity):
        raise Unsuited("stacks know no codecs")
    rules = [spec.make_rule() for spec in specs]
    made = {spec.learned: spec for spec in specs}
    learned = {name: spec.make_task() for name, spec in made.items()}
    tasks = [learned[spec.learned] for spec in specs]
    jobs = check_stackable(schedule, tasks, rules, work)
    budget = check_budget(spec.memory_gib, jobs[0].module.device)
    many = budget // stacked_bytes(jobs)
    if many < 2:
        raise Unsuited("the GPU's memory holds one of them at a time")
    size = -(-len(specs) // -(-len(specs) // many))  # as even as they go
    say(f"{len(specs)} runs share a schedule and a model: stacked on the GPU, {size} at a time")
    for at in range(0, len(specs), size):
        part = slice(at, at + size)
        yield specs[part], jobs[part]


def outcomes_of_stack(cells: Sequence[RunCell], jobs: Sequence[Job]) -> list[Outcome]:
    """Execute a stack. Its time is divided evenly among the cells."""
    from tardigrad.engine.fast.build_stack import stack_on_device
    from tardigrad.engine.together import drive_together

    started = time.perf_counter()
    stack = stack_on_device(jobs)
    ended = drive_together(stack, cells[0].runs.evaluation)
    wall_s = (time.perf_counter() - started) / len(cells)
    out = []
    for cell, end in zip(cells, ended, strict=True):
        if isinstance(end, Diverged):
            out.append(diverged_outcome(cell, end, jobs[0].schedule, meets(cell)))
        else:
            out.append(ended_outcome(cell, end, summarise(end, wall_s) | meets(cell)))
    return out
