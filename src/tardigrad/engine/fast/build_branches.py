"""Branches of captured graphs, as many as the schedule and the memory allow."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.engine.fast.branch_gradients import BranchGradient, compiled
from tardigrad.engine.fast.branches import BranchPlan, most_branches
from tardigrad.engine.fast.cuda_branches import CudaBranches, branch_streams
from tardigrad.engine.fast.gradients import padded
from tardigrad.engine.job import Job
from tardigrad.engine.memory import amount, check_memory, predicted_bytes
from tardigrad.engine.run import Say
from tardigrad.engine.unsuited import Unsuited
from tardigrad.tasks import ModuleTask, Turn
from tardigrad.tasks.randomness import watched

OWN_WAY = ("gradient", "backward", "batch")
"""What a subclass of `ModuleTask` may have changed."""
ROWS = 2
"""Vectors of the model's size that a branch has beside what computing its gradient takes: that
gradient, and its view as parameters. A branch alone may read its view in place."""
ALONE = 30_000_000
"""Parameters from which on one gradient alone keeps a GPU busy; each one more would take room."""


def build_branches(job: Job, say: Say, budget: int) -> CudaBranches:
    """Captured and ready to run. Unsuited where the exact engine must do it."""
    task = job.module
    if task.has_statistics and task.statistics_momentum is None:
        raise Unsuited("the model's BatchNorm layers have different momenta")
    for name in OWN_WAY:
        if getattr(type(task), name) is not getattr(ModuleTask, name):
            raise Unsuited(f"the task has a {name} of its own, which branches would not call")
    plan = BranchPlan.of(job)
    spaces = reserved_bytes(lambda: branch_streams(task.device))
    budget -= spaces
    gradient, computing = prepared(job, say)
    # What torch launches kernel by kernel is not shown to gain from others beside it.
    alone = not gradient.is_compiled or task.layout.size >= ALONE
    longest = 1 if alone else plan.longest
    rows = 1 if alone and gradient.arrangement.is_straight else ROWS
    fixed, each = predicted_branches(job, plan, computing, rows)
    wanted = most_branches(longest, 0, 0)
    most = most_branches(longest, each, budget - fixed)
    if not most:
        check_memory(fixed + each, budget, job.schedule)
    if most < wanted:
        say(
            f"{wanted} gradients at once would take {amount(fixed + wanted * each)} and there are "
            f"{amount(budget)}: {most} at once"
        )
    branches = CudaBranches(job, plan, gradient, most)
    branches.prepare()
    branches.predicted_bytes = spaces + fixed + most * each
    return branches


class PredictedBytes(NamedTuple):
    """`fixed` for the run, and for `each` branch."""

    fixed: int
    each: int


def predicted_branches(
    job: Job, plan: BranchPlan, computing: int, rows: int = ROWS
) -> PredictedBytes:
    """What branches take, of which each takes so many bytes for computing its gradient."""
    theta = job.task.start()
    vector = padded(len(theta)) * theta.element_size()
    return PredictedBytes(predicted_bytes(job, [plan.places.count], 0), computing + rows * vector)


def prepared(job: Job, say: Say) -> tuple[BranchGradient, int]:
    """The gradient, compiled where it can be, and the bytes that computing one takes."""
    task, first = job.module, int(job.schedule.group_rows[0])
    turn = Turn(int(job.schedule.worker[first]), int(job.schedule.step[first]), first)
    eager = BranchGradient(task, job.one_gradient)
    theta = task.start()
    only = torch.zeros(1, dtype=torch.int64, device=theta.device)
    (row,) = eager.arrangement.staged(theta[None], only)
    statistics, out = theta.new_zeros(eager.statistics_size), torch.zeros_like(theta)
    inputs, targets = task.batch(turn)

    def once(gradient: BranchGradient) -> Callable[[], Tensor]:
        return lambda: gradient(row, statistics.zero_(), inputs, targets, out)

    with torch.no_grad(), watched(task.device) as moved:
        once(eager)()
        task.check_buffers()
        whose = moved()
        if whose is not None:  # a graph would draw what it drew while it was captured
            raise Unsuited(f"the model or its loss draws from {whose} generator")
        given = (inputs, targets, *eager.arrangement.tensors_of(row))
        try:
            function = compiled(task, (*given, *eager.statistics_of(statistics.zero_())))
        except Unsuited as why:
            say(f"gradients are not compiled: {why}")
            gradient = eager
        else:
            gradient = BranchGradient(task, job.one_gradient, function)
        once(gradient)()
        return gradient, captured_bytes(once(gradient), task.device)


def captured_bytes(run: Callable[[], object], device: torch.device) -> int:
    """What a graph of it keeps: all branches do the same, each in blocks of its own."""
    graph = torch.cuda.CUDAGraph()
    stream = branch_streams(device)[0]  # now, because making them takes memory of its own

    def capture() -> None:
        with torch.cuda.graph(graph, stream=stream):
            run()

    return reserved_bytes(capture)


def reserved_bytes(run: Callable[[], object]) -> int:
    """What it takes of the GPU's memory and does not give back."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    run()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() - before
