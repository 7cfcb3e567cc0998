"""The fast engine for a run on a GPU."""

from torch import Tensor

from tardigrad.core.trees import named
from tardigrad.engine.fast.batches import look_ahead
from tardigrad.engine.fast.build_branches import build_branches
from tardigrad.engine.fast.cuda_graphs import CudaGraphs
from tardigrad.engine.fast.gradients import check_batchable
from tardigrad.engine.fast.on_device import OnDevice
from tardigrad.engine.fast.requirements import (
    check_pure,
    check_suited,
    comes_twice,
    why_not_staged,
)
from tardigrad.engine.fast.stack import Replica
from tardigrad.engine.fast.view_places import in_stages
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import trace
from tardigrad.engine.memory import amount, check_memory
from tardigrad.engine.run import Say
from tardigrad.engine.unsuited import Unsuited
from tardigrad.tasks import ModuleTask


def build_on_device(job: Job, say: Say, budget: int) -> OnDevice:
    """Captured and ready to run. Raises ValueError for what is wrong, Unsuited where the exact
    engine must do it."""
    check_captured(job)
    try:
        check_staged(job)
        check_batched(job)
    except Unsuited as why:
        branches = build_branches(job, say, budget)
        taken = amount(branches.predicted_bytes)
        say(f"gradients side by side, at most {branches.most}, in {taken}: {why}")
        return branches
    _check_memory(job, budget)
    graphs = CudaGraphs([job])
    graphs.prepare()
    return Replica(graphs)


def check_captured(job: Job) -> None:
    """Unsuited where graphs cannot execute it."""
    rule, ((theta, layout), *_) = job.rule, job.parts()
    check_pure(rule, theta, layout)
    check_suited(job)
    if job.measures:
        why = f"{job.measures[0]} is measured between updates, and graphs make many at once"
        raise Unsuited(why)
    try:
        trace(rule, theta.dtype)
    except Unsuited as error:
        raise Unsuited(f"no kernel for the rule: {error}", error.reason) from None
    if not isinstance(job.task, ModuleTask) or job.task.stochastic:
        raise Unsuited("only modules that draw no random numbers are captured")
    if not job.task.is_plain:
        raise Unsuited("only samples of one tensor and a target are captured")


def check_staged(job: Job) -> None:
    """Unsuited where the schedule's views cannot lie in stages, or its windows be one kernel."""
    schedule, rule, ((theta, layout), *_) = job.schedule, job.rule, job.parts()
    why = why_not_staged(schedule)
    if why is None and named(rule.start_own(theta, layout), ""):
        why = comes_twice(schedule, look_ahead(schedule))
    if why:
        raise Unsuited(why)


def check_batched(job: Job) -> None:
    """Unsuited where a graph cannot hold many of the task's gradients."""
    task = check_batchable(job.task, job.one_gradient)
    if task.augments or task.has_statistics or job.one_gradient.clip_norm is not None:
        why = "augmentation, BatchNorm and clipping are not captured in batches"
        raise Unsuited(why, "gradients")


def work_space(task: ModuleTask, stage: int) -> int:
    """Numbers that the gradients of one batch take on the way, by rule of thumb: three copies of
    its inputs and of itself."""
    inputs: Tensor = task.data.train.inputs
    return 3 * stage * (task.batch_size * inputs[0].numel() + task.layout.size)


def _check_memory(job: Job, budget: int) -> None:
    """Views and gradients in two stages and a pool, work space, and the workers' own rows: those
    twice, because capturing keeps a copy."""
    schedule, task, ((theta, layout),) = job.schedule, job.module, job.parts()
    own = sum(t.numel() for t in named(job.rule.start_own(theta, layout), "").values())
    rest = 2 * schedule.workers * own
    most = 2 * 3 * schedule.workers * theta.numel() + rest + work_space(task, schedule.workers)
    if most * theta.element_size() > budget:
        batches = look_ahead(schedule)
        places = in_stages(schedule, batches)
        needed = 2 * places.count * theta.numel() + rest + work_space(task, batches.largest)
        check_memory(needed * theta.element_size(), budget, schedule)
