"""Points of a sweep as one run on a GPU: those that share a schedule and a model."""

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
from tardigrad.experiment.comparison import Outcome, diverged_outcome, learned_of
from tardigrad.experiment.spec import Spec
from tardigrad.scheduling import Schedule


def may_stack(spec: Spec) -> bool:
    """Whether the point is on a GPU, left to the fast engine, and made to its end: points of a
    stack go on together."""
    on_gpu = str(spec.task.get("device", "cpu")).startswith("cuda")
    return on_gpu and spec.engine != "exact" and not spec.stop


def alike(spec: Spec) -> str:
    """What points must agree in to be stacked, beside their schedule: all but the rule and the
    task's seed."""
    data = spec.data()
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
    rules = [spec.make_rule() for spec in specs]
    made = {learned_of(spec): spec for spec in specs}
    learned = {name: spec.make_task() for name, spec in made.items()}
    jobs = check_stackable(schedule, [learned[learned_of(spec)] for spec in specs], rules)
    budget = check_budget(spec.memory_gib, jobs[0].module.device)
    many = budget // stacked_bytes(jobs)
    if many < 2:
        raise Unsuited("the GPU's memory holds one of them at a time")
    size = -(-len(specs) // -(-len(specs) // many))  # as even as they go
    say(f"{len(specs)} points share a schedule and a model: stacked on the GPU, {size} at a time")
    for at in range(0, len(specs), size):
        part = slice(at, at + size)
        yield specs[part], jobs[part]


def outcomes_of_stack(
    labels: Sequence[str],
    specs: Sequence[Spec],
    jobs: Sequence[Job],
) -> list[Outcome]:
    """Execute a stack. Its time is divided evenly among the points."""
    from tardigrad.engine.fast.build_stack import stack_on_device
    from tardigrad.engine.together import drive_together

    started = time.perf_counter()
    stack = stack_on_device(jobs)
    ended = drive_together(stack, specs[0].evaluation)
    wall_s = (time.perf_counter() - started) / len(specs)
    return [
        diverged_outcome(label, spec.seed, end, jobs[0].schedule)
        if isinstance(end, Diverged)
        else Outcome(label, spec.seed, end.history.records, summarise(end, wall_s))
        for label, spec, end in zip(labels, specs, ended, strict=True)
    ]
