"""Whether shards may be cut as they are: what a rule looks at together must lie on one shard."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import one_of, require
from tardigrad.core.layout import Layout, Sharding
from tardigrad.engine.kernels.graph import update_graph
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import (
    Correction,
    Nothing,
    Now,
    Optimizer,
    Peek,
    Push,
    Rule,
    Signal,
    combine,
    rate,
)

Part = Correction[Any, Any] | Optimizer[Any, Any]


def check_scope(rule: Rule, sharding: Sharding, dtype: torch.dtype) -> None:
    """Refuse shards that a part of the rule would have to look beyond."""
    if sharding.shards == 1:
        return
    for part in (rule.correction, rule.optimizer):
        name = part.called
        if part.scope is not None:
            one_of(f"{name}.scope", part.scope, ("parameter", "tensor", "model"))
        require(
            part.scope != "model",
            f'{name} looks at all parameters together (scope "model"), and {sharding.shards} '
            "shards hold a part each: use shards = 1",
        )
        require(
            part.scope != "tensor" or sharding.whole_tensors,
            f'{name} looks at whole tensors (scope "tensor"), and shards cut through them: '
            'use shard_by = "tensor"',
        )
    for part, alone in _alone(rule):
        why = not_elementwise(alone, dtype)
        if part.scope == "parameter":
            require(
                why is None or why.reason != "reduction",
                f'{part.called} says scope = "parameter", but {why}: say "tensor" (with '
                'shard_by = "tensor") or "model" (with shards = 1)',
            )
        elif why is not None:
            raise ValueError(
                f"{part.called} was not found to treat each parameter alone, and "
                f"{sharding.shards} shards hold a part of them each: {why}. Say in its class what "
                'it looks at: scope = "parameter" for each parameter alone, "tensor" for whole '
                'tensors (with shard_by = "tensor") or "model" for all of them (with shards = 1)'
            )


def not_elementwise(rule: Rule, dtype: torch.dtype) -> Unsuited | None:
    """Why the rule was not found to treat each parameter alone; None where it was."""
    try:
        hash(rule)
    except TypeError:  # a user's part of lists or the like
        return _found(rule, dtype)
    return _remembered(rule, dtype)


def _found(rule: Rule, dtype: torch.dtype) -> Unsuited | None:
    try:
        for gradients in (1, 2):  # a group may go another way than a single one
            update_graph(rule, dtype, gradients)
    except Unsuited as why:
        return why.with_traceback(None)
    return None


_remembered = lru_cache(maxsize=256)(_found)


def _alone(rule: Rule) -> Iterator[tuple[Part, Rule]]:
    """Each part that may be one for each parameter alone, beside an element-wise one."""
    if rule.correction.scope in (None, "parameter"):
        yield rule.correction, replace(rule, clip_norm=None, optimizer=_Keeps())
    if rule.optimizer.scope in (None, "parameter"):
        yield rule.optimizer, replace(rule, clip_norm=None, correction=_Asks(False))
        yield rule.optimizer, replace(rule, clip_norm=None, correction=_Asks(True))


@dataclass(frozen=True)
class _Asks(Correction[Nothing, Nothing]):
    """Uses nothing of an optimizer but its step, or all that it has."""

    all: bool

    def observe(
        self, state: Nothing, grad: Tensor, peek: Peek, now: Now, layout: Layout
    ) -> Nothing:
        if self.all:
            peek.tentative()
            with suppress(ValueError):  # most keep no previous step
                peek.previous()
        return state

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        if not self.all:
            return Signal(push.grad, push.grad), own
        return Signal(push.grad / push.staleness, push.grad, 1 / push.staleness), own


class _Kept(NamedTuple):
    step: Tensor


@dataclass(frozen=True)
class _Keeps(Optimizer[_Kept, Nothing]):
    """Has all that a correction may use."""

    def start(self, theta: Tensor, layout: Layout) -> _Kept:
        return _Kept(torch.zeros_like(theta))

    def step(
        self,
        theta: Tensor,
        state: _Kept,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, _Kept, tuple[Nothing, ...]]:
        signal = combine(signals)
        theta = torch.addcmul(theta, signal.first, -rate(signal, now))
        return theta, _Kept(signal.first + signal.raw), tuple(owns)

    def previous(self, state: _Kept) -> Tensor:
        return state.step
