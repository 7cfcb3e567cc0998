"""Synchronous groups: gradients at one view are one gradient of a larger batch.

Workers of a round start from the version that their gradients are applied to, so they differ in
their samples alone, and a rule makes of the group what it makes of its mean. Hence one gradient of
all their samples does, at a fraction of the time and memory. A rule or a loss for which that is not
so is found out before the run.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tardigrad.layout import Layout
from tardigrad.rules import Now, Push, Rule
from tardigrad.schedule import Schedule
from tardigrad.schedules import Progress
from tardigrad.tasks import ModuleTask
from tardigrad.tensors import named

MOST_BYTES = 2**26
"""Inputs of a group that are computed at once; more are better taken in turn."""


def first_of_each(schedule: Schedule, task: ModuleTask, rule: Rule) -> Schedule | None:
    """The schedule as if each group were its first gradient, where that one can stand for all of
    them with a batch of all their samples; else None."""
    sizes = np.diff(schedule.group_start)
    if schedule.shards > 1 or not schedule.groups or len(np.unique(sizes)) > 1 or sizes[0] == 1:
        return None
    if schedule.delays.any() or len(schedule.member_after):
        return None
    if len(np.unique(schedule.group_rows)) < len(schedule.group_rows):
        return None
    inputs = task.data.train.inputs
    if int(sizes[0]) * task.batch_size * inputs[0].numel() * inputs.element_size() > MOST_BYTES:
        return None
    if task.augments or task.has_statistics or task.stochastic:
        return None
    if not (takes_means(rule) and loss_is_mean(task)):
        return None
    first = schedule.group_rows[schedule.group_start[:-1]]
    return replace(schedule, group_start=np.arange(schedule.groups + 1), group_rows=first)


def loss_is_mean(task: ModuleTask) -> bool:
    """Whether the gradient of two batches as one is the mean of theirs: not so where a loss weighs
    samples by what else is in the batch. Found out by trying, on the first batches of two workers.
    """
    inputs, targets = task.batches([0, 1], [0, 0], [0, 1])
    view = task.start()
    batches = [*zip(inputs, targets, strict=True), (inputs.flatten(0, 1), targets.flatten(0, 1))]
    one, other, both = (
        torch.cat([piece.flatten() for piece in task.backward(view, *batch)[1]])
        for batch in batches
    )
    off = (both - (one + other) / 2).abs().max()
    return bool(off <= 100 * torch.finfo(view.dtype).eps ** 0.75 * both.abs().max())


def takes_means(rule: Rule) -> bool:
    """Whether two gradients at θ itself do what their mean does; found out by trying."""
    if rule.clip_norm is not None:
        return False
    size = 6
    layout, one = Layout.flat(size), torch.ones((), dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    theta, *grads = torch.randn(5, size, generator=draw, dtype=torch.float64)
    if named(rule.start_own(theta, layout), ""):
        return False
    first = rule.scalars(Progress(epoch_size=1))
    now = Now(
        one * first.lr,
        one * first.lr_max,
        tuple(one * x for x in first.correction),
        tuple(one * x for x in first.optimizer),
    )

    def updated(pushed: list[list[Tensor]]) -> list[Tensor]:
        at, state = theta, rule.start(theta, layout)
        for group in pushed:
            own = rule.start_own(theta, layout)
            pushes = [Push(grad, at, one) for grad in group]
            at, state, _ = rule.apply(
                at, state, [own] * len(group), range(len(group)), pushes, now, layout
            )
        return [at, *named(state, "").values()]

    # Twice, because the first update starts from a state of zeros.
    groups = [grads[:2], grads[2:]]
    apart, together = updated(groups), updated([[torch.stack(g).mean(0)] for g in groups])
    return all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(apart, together, strict=True))
