"""How many runs share a GPU at a time, each in a process of its own.

A run with several gradients side by side keeps a GPU busy, and others beside it gain nothing:
ResNet-20 in TF32 on an H200, 32 workers, made 744 updates a second alone, 676 and 668 in all with 2
and 4 runs at once (in bfloat16 1,105, 1,001 and 1,014). Where few gradients are ready together it
is idle for part of the time: with 2 workers one run made 308, two 442 in all. The exact engine
leaves it idle for most of it: 64 alone, 129 in all.

**Choice**: processes take turns on the GPU. Through NVIDIA's MPS they would share it at the same
time, but a run of many branches is slower there (532 where 744 was alone), and those that are put
side by side gained little by it (523 for 442, and 133 for 129).
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tardigrad.engine.choose import WORTH_COMPILING, Engine
from tardigrad.engine.execute import divide
from tardigrad.engine.job import Job
from tardigrad.engine.memory import GIB, amount, check_budget, predicted_bytes
from tardigrad.engine.unsuited import Unsuited
from tardigrad.engine.versions import most_versions
from tardigrad.experiment.cells import Experiment
from tardigrad.experiment.spec import Spec
from tardigrad.tasks import ModuleTask, Task, Turn

FILLS = 4
"""Gradients at a time that keep a large GPU busy: four of ResNet-20 take 1.4 ms each where one
alone takes 2.7, and sixteen 1.3."""
CONTEXT = GIB
"""Bytes that a process takes of a GPU before its first tensor."""


class AtOnce(NamedTuple):
    """So many runs at a time, and why."""

    runs: int
    why: str


def device_of_runs(runs: Experiment) -> torch.device:
    """Where its tensors are, as far as its spec says."""
    return torch.device(str(runs.task.get("device", "cpu")) if isinstance(runs, Spec) else "cpu")


def share_gib(device: torch.device, jobs: int) -> float:
    """What each of so many processes may take of the device's free memory."""
    own = CONTEXT if device.type == "cuda" else 0
    return max(check_budget(None, device) / jobs - own, 1) / GIB


def at_once(specs: Sequence[Spec], many: int) -> AtOnce:
    """Of `many` runs on one GPU, how many at a time; `specs` are those that differ in what they
    take."""
    if many < 2:
        return AtOnce(1, "there is only one")
    gradients, needed = 1, 0
    for spec in specs:
        task, schedule = spec.make_task(), spec.make_schedule()
        vector = task.layout.size * task.start().element_size()
        if schedule is None:  # made while it is executed, by the exact engine
            mine, kept = 1, (spec.make_cluster().workers + 4) * vector
        else:
            rule = spec.make_rule()
            sharding = divide(task, rule, schedule.shards, spec.shard_by)
            job = Job(schedule, task, rule, sharding, spec.measures)
            mine = gradients_at_a_time(spec.engine, job)
            kept = predicted_bytes(job, most_versions(schedule, extended=True), mine)
        gradients = max(gradients, mine)
        needed = max(needed, mine * _computing(task) + kept)
    wanted = min(FILLS // min(gradients, FILLS), many, os.cpu_count() or 1)
    if wanted == 1:
        return AtOnce(1, f"each keeps the GPU busy, with up to {gradients} gradients at a time")
    left = check_budget(specs[0].memory_gib, device_of_runs(specs[0]))
    fit = left // (needed + CONTEXT)
    why = f"each takes about {amount(needed)} of the GPU's {amount(left)}"
    return AtOnce(max(1, min(wanted, fit)), why)


def gradients_at_a_time(engine: Engine, job: Job) -> int:
    """How many the engine computes beside each other, or in a batch; 1 is the exact one's."""
    # The GPU's own code: imported where there is one to run on.
    from tardigrad.engine.fast.branches import BranchPlan, most_branches
    from tardigrad.engine.fast.build_on_device import check_captured

    few = len(job.schedule.group_rows) < WORTH_COMPILING
    if engine == "exact" or (engine == "auto" and few):
        return 1
    try:
        check_captured(job)
        return most_branches(BranchPlan.of(job).longest, 0, 0)
    except Unsuited:
        return 1


def _computing(task: Task) -> int:
    """Bytes that one gradient takes on the way, by computing one."""
    if not isinstance(task, ModuleTask) or task.device.type != "cuda":
        return 0
    before = torch.cuda.memory_allocated(task.device)
    torch.cuda.reset_peak_memory_stats(task.device)
    task.gradient(task.start(), Turn(0, 0, 0))
    taken = torch.cuda.max_memory_allocated(task.device) - before
    torch.cuda.empty_cache()
    return taken
