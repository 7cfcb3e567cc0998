"""What the fast engine, and each of its forms, asks of a schedule and of a rule."""

import itertools

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.layout import Layout
from tardigrad.core.trees import named
from tardigrad.engine.fast.batches import Batches
from tardigrad.engine.job import Job
from tardigrad.engine.kernels.starts import own_rows_start_alike
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import Now, Push, Rule
from tardigrad.rules.rates import Progress
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.schedule import MERGED


def check_suited(job: Job) -> None:
    """Unsuited where neither a CPU's nor a GPU's form of the fast engine can execute the job."""
    if "b_staleness" in job.measures:
        raise Unsuited("b_staleness computes every gradient again, at its update")
    if job.schedule.weighted:
        raise Unsuited("gradients of a group count for more or less than others")
    if MERGED in job.schedule.reasons:
        raise Unsuited("a link merged gradients")
    if not own_rows_start_alike(job.rule, *job.parts()[0]):
        raise Unsuited("the rule's own rows start from θ, or are not vectors")


def why_not_one_by_one(schedule: Schedule) -> str | None:
    """None where every update applies one gradient, each once, at one shard, and nobody leaves."""
    if schedule.shards > 1:
        return "it has several shards"
    if (np.diff(schedule.group_start) != 1).any():
        return "its updates apply groups of gradients"
    if len(np.unique(schedule.group_rows)) != schedule.groups:
        return "a link applied gradients again"
    if len(schedule.member_after):
        return "workers came and went"
    return None


def why_not_staged(schedule: Schedule) -> str | None:
    """None where `in_stages` can place the schedule's views, else why not."""
    why = why_not_one_by_one(schedule)
    read = schedule.read[schedule.group_rows, 0]
    if why is None and len(np.unique(read[read > 0])) != (read > 0).sum():
        why = "several gradients read one version"
    if why is None and len(schedule.drop_row):
        why = "gradients were dropped"
    return why


def comes_twice(schedule: Schedule, batches: Batches) -> str | None:
    """None where no window applies two gradients of one worker, else why that matters.

    The GPU's kernel reads a worker's own rows ahead of their use.
    """
    workers = schedule.worker[schedule.group_rows]
    for begin, end in itertools.pairwise(batches.window.tolist()):
        if len(np.unique(workers[begin:end])) < end - begin:
            return "a worker comes twice in one window, and the rule keeps numbers per worker"
    return None


def check_pure(rule: Rule, theta: Tensor, layout: Layout) -> None:
    """Refuse a rule that changes its inputs, or gives two results for one input; `theta` and
    `layout` are of a shard that it will be used on."""
    probe = torch.linspace(0.5, 1.5, len(theta), dtype=theta.dtype, device=theta.device)
    scalar = torch.ones((), dtype=torch.float64)

    def once() -> list[Tensor]:
        theta = probe.clone()
        state, own = rule.start(theta, layout), rule.start_own(theta, layout)
        grad, view = theta * 0.1, theta - 0.01
        inputs = [theta, grad, view, *named((state, own), "").values()]
        before = [tensor._version for tensor in inputs]
        first = rule.scalars(Progress(epoch_size=1))
        correction, optimizer = (
            tuple(scalar for _ in part) for part in (first.correction, first.optimizer)
        )
        now = Now(scalar * 0.1, scalar * 0.1, correction, optimizer)
        after = rule.apply(theta, state, (own,), (0,), (Push(grad, view, scalar * 2),), now, layout)
        sent = rule.send(after[0], after[1], now, 1)
        if before != [tensor._version for tensor in inputs]:
            raise ValueError(
                "the rule is not pure: it changed one of its inputs in place, and the fast engine "
                "would train on changed views; write x = x + y, not x += y or x.add_(y)"
            )
        return [*named(after, "").values(), sent]

    for one, other in zip(once(), once(), strict=True):
        if not torch.equal(one, other):
            raise ValueError(
                "the rule is not pure: the same inputs gave two results; take randomness from "
                "outside, or use engine='exact'"
            )
