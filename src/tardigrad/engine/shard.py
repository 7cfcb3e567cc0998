"""A shard's numbers: its slice of θ, the rule's state and the workers' rows.

The exact executor and the Ray runtime both hold their parameters in this object, so that what a
cluster does and what a replay does are the same operations on the same values.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.core.layout import Layout
from tardigrad.core.trees import leaves, named, restored
from tardigrad.engine.kernels.into import UpdateInto, update_into
from tardigrad.rules import Now, Push, Rule, RuleOwn, RuleState, Scalars
from tardigrad.rules.rates import Progress

WORTH_FOLLOWING = 1 << 17
"""Parameters from which on a copy of them counts beside the rest of an update (40 µs of 400)."""


class Arrived(NamedTuple):
    """One gradient's slice for this shard, the view's slice, how late it is, and how many batches
    it is made of."""

    worker: int
    grad: Tensor
    view: Tensor
    delay: int
    batches: int = 1


class Shard:
    """θ at some version, and how the next one is made.

    `sent` is what workers pull: θ, or the rule's look-ahead. Tensors are never changed in place, so
    a version that was sent stays what it was.
    """

    def __init__(
        self, rule: Rule, theta: Tensor, layout: Layout, batch_size: int = 1, epoch_size: int = 0
    ) -> None:
        self.rule = rule
        self.layout = layout
        self.batch_size = batch_size
        self.epoch_size = epoch_size
        self.theta = theta
        self.state = rule.start(theta, layout)
        self.owns: dict[int, RuleOwn] = {}
        self.left: set[int] = set()
        """Workers that have gone; a gradient of theirs may still come."""
        self.version = 0
        self.samples = 0
        self.sent = theta
        self._into: UpdateInto | None = None
        self._last: tuple[Scalars, Now] | None = None

    def use_places(self) -> None:
        """From now on make what is sent in the memory that `apply` is given, if the rule can be
        followed so far. To find out takes a second in a new process: small shards copy instead."""
        if len(self.theta) >= WORTH_FOLLOWING:
            self._into = update_into(self.rule, self.theta.dtype)

    def apply(
        self,
        arrived: Sequence[Arrived],
        scale: float = 1.0,
        out: Tensor | None = None,
        weights: Sequence[float] = (),
    ) -> None:
        """One update from a group, in worker order. `out` is memory that nobody reads, to be used
        or not: after `use_places`, what is sent is made there if one gradient makes the update.
        `weights`: how much each counts; none, or all the same, is the mean, to the bit."""
        now = self._now(scale)
        workers = list(dict.fromkeys(a.worker for a in arrived))
        owns = [self.own_of(worker) for worker in workers]
        whose = [workers.index(a.worker) for a in arrived]
        pushes = [Push(a.grad, a.view, _staleness(a.delay)) for a in arrived]
        if self._into is None or out is None or len(pushes) > 1 or workers[0] in self.left:
            unequal = weights if len(set(weights)) > 1 else ()
            theta, state, sent = self._update(workers, owns, whose, pushes, now, unequal)
        else:
            theta, state, own, sent = self._into(
                self.theta, self.state, owns[0], pushes[0], now, out
            )
            self.owns[workers[0]] = own
        self.theta, self.state, self.sent = theta, state, sent
        self.version += 1
        self.samples += sum(a.batches for a in arrived) * self.batch_size

    def _update(
        self,
        workers: Sequence[int],
        owns: Sequence[RuleOwn],
        whose: Sequence[int],
        pushes: Sequence[Push],
        now: Now,
        unequal: Sequence[float],
    ) -> tuple[Tensor, RuleState, Tensor]:
        versions = _versions(inputs := leaves((self.theta, self.state, owns, pushes, now)))
        group = (self.theta, self.state, owns, whose, pushes, now, self.layout)
        if unequal:
            weights = torch.tensor(unequal, dtype=torch.float64).unbind()
            theta, state, new_owns = self.rule.apply(*group, weights)
        else:
            theta, state, new_owns = self.rule.apply(*group)
        _check_unchanged(inputs, versions)
        for worker, own in zip(workers, new_owns, strict=True):
            if worker in self.left:
                state = self.rule.leave(state, own)
            else:
                self.owns[worker] = own
        versions = _versions(inputs := leaves((theta, state, now)))
        sent = self.rule.send(theta, state, now, len(pushes))
        _check_unchanged(inputs, versions)
        return theta, state, sent

    def _now(self, scale: float) -> Now:
        """As tensors, which take longer to make than to be found unchanged."""
        scalars = self.rule.scalars(Progress(self.version, self.samples, self.epoch_size), scale)
        if self._last is None or self._last[0] != scalars:
            self._last = scalars, scalars.tensors()
        return self._last[1]

    def leave(self, worker: int) -> None:
        """A worker has gone; what is sent changes with the next update."""
        self.left.add(worker)
        own = self.owns.pop(worker, None)
        if own is not None:
            self.state = self.rule.leave(self.state, own)

    def join(self, worker: int) -> None:
        """A worker has come, perhaps again; its rows start anew."""
        self.left.discard(worker)

    def own_of(self, worker: int) -> RuleOwn:
        own = self.owns.get(worker)
        return self.rule.start_own(self.theta, self.layout) if own is None else own

    def numbers(self, prefix: str) -> dict[str, Tensor]:
        """θ, what is sent and the rule's state, by name."""
        out = {f"{prefix}.theta": self.theta, f"{prefix}.sent": self.sent}
        return out | named(self.state, f"{prefix}.state")

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name."""
        out = self.numbers(prefix)
        for worker, own in self.owns.items():
            out |= named(own, f"{prefix}.own.{worker}")
        return out

    def facts(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "samples": self.samples,
            "owners": list(self.owns),
            "left": sorted(self.left),
        }

    def restore(self, prefix: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.theta, self.sent = tensors[f"{prefix}.theta"], tensors[f"{prefix}.sent"]
        self.state = restored(self.state, tensors, f"{prefix}.state")
        own = self.rule.start_own(self.theta, self.layout)
        self.owns = {w: restored(own, tensors, f"{prefix}.own.{w}") for w in facts["owners"]}
        self.left = saved_left(facts, own)
        self.version, self.samples = facts["version"], facts["samples"]


def saved_left(facts: Mapping[str, Any], own: RuleOwn) -> set[int]:
    """The workers that had left when these facts were saved; `own` are any worker's rows."""
    require(
        "left" in facts or not named(own, ""),
        "the checkpoint was made by tardigrad 0.1, which did not save which workers had left, and "
        "this rule keeps numbers per worker, so it cannot go on from there: start again in a new "
        "folder",
    )
    return set(facts.get("left", ()))


@lru_cache(maxsize=4096)
def _staleness(delay: int) -> Tensor:
    """τ as a tensor, which takes longer to make than to be found unchanged."""
    return torch.tensor(delay + 1, dtype=torch.float64)


def _versions(tensors: Sequence[Tensor]) -> list[int]:
    """How often each was changed in place, as torch counts it."""
    return [tensor._version for tensor in tensors]


def _check_unchanged(inputs: Sequence[Tensor], versions: Sequence[int]) -> None:
    """Refuse a rule that changes its inputs in place."""
    if versions != _versions(inputs):
        _staleness.cache_clear()  # it may be one of these
        raise ValueError(
            "the rule changed one of its inputs in place, so that views workers still hold "
            "changed with it: write x = x + y, not x += y or x.add_(y)"
        )
