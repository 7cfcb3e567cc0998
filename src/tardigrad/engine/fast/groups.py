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
    targets = task.data.train.targets
    if not targets.is_floating_point() and bool((targets < 0).any()):
        return None  # torch's losses leave those samples out of their mean
    if not (takes_means(rule) and loss_is_mean(task)):
        return None
    first = schedule.group_rows[schedule.group_start[:-1]]
    return replace(schedule, group_start=np.arange(schedule.groups + 1), group_rows=first)


def loss_is_mean(task: ModuleTask) -> bool:
    """Whether the gradient of several batches as one is the mean of theirs: not so where a loss or
    a model weighs samples by what else is in the batch. Found out by trying, on the first batches
    of two workers. What cannot be computed as one is not the same either.
    """
    inputs, targets = task.batches([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], range(6))
    view = task.start()

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([piece.flatten() for piece in task.backward(view, x, y)[1]])

    apart = torch.stack([gradient(x, y) for x, y in zip(inputs, targets, strict=True)]).mean(0)
    try:
        together = gradient(inputs.flatten(0, 1), targets.flatten(0, 1))
    except RuntimeError:  # torch's own: shapes written into the model
        return False
    off = (together - apart).abs().max()
    return bool(off <= 100 * torch.finfo(view.dtype).eps ** 0.75 * apart.abs().max())


def takes_means(rule: Rule) -> bool:
    """Whether two gradients at θ itself do what their mean does; found out by trying."""
    if rule.clip_norm is not None or rule.within_group:
        return False
    size = 6
    layout, one = Layout.flat(size), torch.ones((), dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    theta, *grads = torch.randn(5, size, generator=draw, dtype=torch.float64)
    if named(rule.start_own(theta, layout), ""):
        return False
    first = rule.scalars(Progress(epoch_size=1))
    now = Now(  # with a rate of 1, because a small one would hide what differs
        one,
        one,
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

    for scale in (1.0, 1e3):
        # Twice, because the first update starts from a state of zeros.
        groups = [[scale * grad for grad in pair] for pair in (grads[:2], grads[2:])]
        apart, together = updated(groups), updated([[torch.stack(g).mean(0)] for g in groups])
        pairs = zip(apart, together, strict=True)
        if not all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in pairs):
            return False
    return True
