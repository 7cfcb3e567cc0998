"""A run, as all its processes know it."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.layout import Sharding
from tardigrad.links import Codec, Full, Gate, Link
from tardigrad.policies import Policy
from tardigrad.protocol.gates import ShardGate, WorkerGate
from tardigrad.protocol.messages import Deal
from tardigrad.rules import Rule
from tardigrad.tasks import Task, Turn
from tardigrad.work import (
    AnyWork,
    Delivery,
    Interrupted,
    MicroBatches,
    OneGradient,
    delivered,
    never,
)


class WorkerKeeps(NamedTuple):
    """What a worker keeps for itself from row to row."""

    work: Any = ()
    """Its work's."""
    error: Any = ()
    """What its codec has not sent, of all shards' slices; () where that is not fed back."""


@dataclass(frozen=True)
class RunSetup:
    task: Task
    rule: Rule
    policy: Policy
    sharding: Sharding
    workers: int
    """How many there are at first, numbered from 0."""
    updates: int
    threads: int = 1
    snapshot_every: int = 0
    """Updates between versions that are kept to be evaluated; 0: none are."""
    digest_every: int = 0
    sync_log: bool = False
    """Whether logs survive loss of power, and are seen by other machines at once."""
    link: Link = field(default_factory=Full)
    seed: int = 0
    work: AnyWork = field(default_factory=OneGradient)
    first_updates: int | None = None
    """Of a run that has been extended, how many it was begun with: its logs decide by that number
    until they say another."""

    @property
    def begun_with(self) -> int:
        return self.updates if self.first_updates is None else self.first_updates

    @property
    def shards(self) -> int:
        return self.sharding.shards

    @property
    def shard_bytes(self) -> tuple[int, ...]:
        """Of each shard's slice of the parameters."""
        size = self.task.start().element_size()
        return tuple((stop - start) * size for start, stop in pairwise(self.sharding.bounds))

    @property
    def push_bytes(self) -> tuple[int, ...]:
        """Of each shard's slice of a gradient, as it travels."""
        size, bounds = self.task.start().element_size(), self.sharding.bounds
        return tuple(self.codec.encoded_bytes(b - a, size) for a, b in pairwise(bounds))

    @property
    def codec(self) -> Codec:
        return self.link.codec

    @property
    def gated(self) -> bool:
        """Whether a link decides on what crosses."""
        return self._gate() is not None

    @property
    def keeps_unsent(self) -> bool:
        """Whether workers may hold gradients that will be merged into a later push."""
        return self.link.withholds_pushes and self.link.on_drop == "average"

    @cached_property
    def keeps_state(self) -> bool:
        """Whether workers keep something for themselves from row to row."""
        return self.codec.error_feedback or self.work.keeps_state(self.task)

    @property
    def leaves_view(self) -> bool:
        """Whether workers certainly write nothing to their view, past torch neither, as in
        `view.numpy()[0] = 1`: others' code may, and torch would not count it."""
        ours = type(self.work) in (OneGradient, MicroBatches)
        return ours and bool(getattr(self.task, "leaves_view", False))

    def begin_state(self) -> WorkerKeeps:
        """What a worker's first process has."""
        theta = self.task.start()
        error = torch.zeros_like(theta) if self.codec.error_feedback else ()
        return WorkerKeeps(self.work.start(self.task, theta), error)

    def deal(self, step: int, row: int, deal: Deal | None) -> Deal:
        """The batches of a row: those that it was dealt, or as many as the work always takes."""
        batches = self.work.batches
        return deal or Deal(batches, row * batches, step * batches)

    def run_work(
        self,
        view: Tensor,
        state: Any,
        worker: int,
        step: int,
        row: int,
        deal: Deal | None = None,
        interrupted: Interrupted = never,
    ) -> Delivery[Any] | None:
        """What a worker makes of its view and pushes, and what it keeps: a function of these. None
        where it was interrupted, which it asks between batches."""
        batches, first, own = self.deal(step, row, deal)
        turn = Turn(worker, own, first)
        made = self.work.run(self.task, view, state, turn, batches, interrupted)
        if made is None and interrupted():
            return None
        return delivered(made)

    def worker_gate(self, worker: int) -> WorkerGate | None:
        gate = self._gate()
        return None if gate is None else WorkerGate(self.link, gate, worker, self.shards)

    def shard_gate(self, shard: int) -> ShardGate | None:
        gate = self._gate()
        return None if gate is None else ShardGate(self.link, gate, shard, self.shards)

    def _gate(self) -> Gate | None:
        return self.link.realise(self.seed, self.shard_bytes)
