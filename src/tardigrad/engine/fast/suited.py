"""Whether the fast engine may execute a run at all."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tardigrad.core.layout import Layout, Sharding
from tardigrad.core.trees import named
from tardigrad.engine.kernels.starts import own_rows_start_alike
from tardigrad.rules import Now, Push, Rule
from tardigrad.rules.rates import Progress
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.schedule import MERGED


class Unsuited(ValueError):
    """The fast engine cannot execute this; the message says why."""


def check_suited(
    schedule: Schedule, rule: Rule, theta: Tensor, sharding: Sharding, measures: Sequence[str]
) -> None:
    if "b_staleness" in measures:
        raise Unsuited("b_staleness computes every gradient again, at its update")
    if MERGED in schedule.reasons:
        raise Unsuited("a link merged gradients")
    if not own_rows_start_alike(rule, theta[sharding.slice(0)], sharding.layouts[0]):
        raise Unsuited("the rule's own rows start from θ, or are not vectors")


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
